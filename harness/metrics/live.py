"""Metrics that only live runs have: the quality of the load, and losses over sockets.

A send is one message or request of a client. Its send delay counts from when it was due, or from when the connection
that it needs was ready. Sources of the wording: `harness.live.endpoints.logs`, `harness.live.run.floor`.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from harness.metrics.definitions import TURN_END, Definition, share_of, statistics
from harness.metrics.metric import Measured, Metric, Result, measured_as, metrics_of, share
from harness.metrics.rates import RATE, is_rate, rate_span, within
from harness.metrics.replies import FAILED_SHARE, REPLY_DEFINITIONS, failure_metrics, reply_metrics
from harness.metrics.scraped_histogram import grown, observed
from harness.metrics.turns import columns_of
from harness.request_tables.request_table import BARGED_IN, COMPLETED, turn_keys
from harness.request_tables.steady_window import WHOLE, Window, counted, on_line_mean, sessions_rps

GAPS_MS = (250, 500)
"""Longer pauses than the 100 ms of `continuity`, ms: one that many listeners miss, and one that all notice. [chosen]"""
BENCHMARK = {
    "audio_ttfp": ("s", "time to the first audio"),
    "audio_rtf": ("1", "time to the last audio over seconds of audio"),
    "audio_underrun": ("s", "worst lateness of a player that never waits"),
}
"""Counts of `vllm bench serve --omni` (vllm_omni 0.30.0, benchmarks/patch/patch.py 2630-2666): unit, meaning."""

FLOOR = {
    "floor_send_delay_p99": "send_delay_p99_s",
    "floor_ttfp_bias_p50": "bias_p50_s",
    "floor_ttfp_bias_p99": "bias_p99_s",
}
"""metric -> its name in a floor."""


def summarise_live(
    events: pd.DataFrame,
    requests: pd.DataFrame | None,
    sends: pd.DataFrame,
    failures: pd.DataFrame,
    floor: Mapping[str, float | None],
    *,
    late_s: float,
    window: Window = WHOLE,
    scrape: pd.DataFrame | None = None,
    lost_sessions: int = 0,
    answered: np.ndarray | None = None,
    trace: pd.DataFrame | None = None,
) -> dict[str, Metric]:
    """Return all metrics of one run, by the names and in the order of `LIVE_DEFINITIONS`.

    `requests`: of turns; None for frames, which have no audio. `floor`: the result against the null server, in s; may
    be empty. `late_s`: the send delay above which a send is late. `window`: of the metrics of turns. `scrape`: the
    server's own metrics (`harness.live.run.scrape`). `answered`: of frames, whether each was. `trace`: its
    rows, with the lengths of replies that were asked for.
    """
    kinds = events["kind"].to_numpy()
    came = int((kinds == "session_start").sum())
    delays = sends["send_delay_s"].to_numpy(float)
    delays = delays[~np.isnan(delays)]
    connects = events["value"].to_numpy(float)[kinds == "connected"]
    lag = None if scrape is None else loop_lag(scrape, window)
    closed = failures["reason"].astype(str).str.startswith("closed").to_numpy(bool)
    measured: dict[str, Result] = {measured_as(*each): (None, 0, 0) for each in LIVE_DEFINITIONS.items()}
    measured |= {
        "send_delay": delays,
        "sends": (float(delays.size), delays.size, 0),
        "sends_late": (float((delays > late_s).sum()), delays.size, 0),
        "requests_repeated": _repeated(sends),
        "connect": np.append(connects, np.full(max(0, came - connects.size), np.nan)),
        "shed": (float((kinds == "shed").sum()), came, 0),
        "disconnects": (float(len(set(failures["session"].to_numpy()[closed]))), came, 0),
        **_rtp(kinds, events["value"].to_numpy(float)),
        **{name: _floor(floor.get(key)) for name, key in FLOOR.items()},
        "lost_sessions": (float(lost_sessions), came, 0),
    }
    if scrape is not None:
        measured["prefix_cache_hits"] = _cache_hits(scrape, window)
    if lag is not None:
        measured |= {"server_lag_p99": (lag.p99_s, lag.n, 0), "server_lag_max": (lag.max_s, lag.n, 0)}
    if answered is not None:
        measured[FAILED_SHARE] = share(~answered)
    if requests is not None:
        steady = counted(requests)
        measured |= reply_metrics(events, steady, trace) | failure_metrics(events, requests)
        measured["tokens_stated"] = _stated(events, steady)
        measured |= _prompts(events, steady)
        measured["first_answer"] = _first_answers(events, steady)
        measured["text_tps"] = _text_tps(events, requests, window)
        measured |= _continuity(steady) | _benchmark(steady) | _audio(events, steady)
        measured |= _window(events, requests, window)
    return metrics_of(measured, LIVE_DEFINITIONS, [dict])


def _rtp(kinds: np.ndarray, values: np.ndarray) -> dict[str, Result]:
    names = ("packets", "lost", "late", "jitter", "buffered")
    packets, lost, late, jitter_s, buffered_s = (values[kinds == f"rtp_{name}"] for name in names)
    n = int(packets.sum())
    loss: Result = ((lost.sum() + late.sum()) / n if n else None, n, 0)
    return {"rtp_loss": loss, "rtp_jitter": jitter_s, "rtp_buffered": buffered_s}


def _repeated(sends: pd.DataFrame) -> Measured:
    kinds = sends["kind"].astype(str).to_numpy()
    return float((kinds == "repeat").sum()), int((kinds == "request").sum()), 0


def _stated(events: pd.DataFrame, requests: pd.DataFrame) -> Measured:
    completed = (requests["status"] == COMPLETED) & ~requests["spoken"]
    read = requests.loc[completed & requests["ttft_s"].notna()]
    usage = events.loc[events["kind"].to_numpy() == "usage"]
    return share(np.isin(turn_keys(read), turn_keys(usage)))


def _prompts(events: pd.DataFrame, requests: pd.DataFrame) -> dict[str, Measured]:
    """Return the prompts' tokens and the cached share of them, by the usage that the server states. vLLM leaves cached
    tokens out where there are none, so they count as 0 if any reply states them."""
    kinds, turns, values = events["kind"].to_numpy(), turn_keys(events), events["value"].to_numpy(float)
    counted_turns = np.isin(turns, turn_keys(requests))
    tokens, cached = (values[(kinds == kind) & counted_turns] for kind in ("prompt", "prompt_cached"))
    if not tokens.size:
        return {}
    n, missing = tokens.size, len(requests) - tokens.size
    share_cached = float(cached.sum() / tokens.sum()) if (kinds == "prompt_cached").any() else None
    return {
        "prompt_tokens": (float(tokens.sum()), n, missing),
        "prompt_tokens_mean": (float(tokens.mean()), n, missing),
        "cached_prompt_share": (share_cached, n, missing),
    }


def _first_answers(events: pd.DataFrame, requests: pd.DataFrame) -> np.ndarray:
    """Return the times to the first token that is not reasoning, s; NaN for replies that do not reason."""
    answers = events.loc[events["kind"].to_numpy() == "first_answer"]
    at_s = pd.Series(answers["t"].to_numpy(float), turn_keys(answers))
    return at_s.reindex(turn_keys(requests)).to_numpy(float) - requests["turn_end_s"].to_numpy(float)


def _text_tps(events: pd.DataFrame, requests: pd.DataFrame, window: Window) -> Measured:
    turns = columns_of(requests)
    span = rate_span(turns, window, float(events["t"].to_numpy(float).max(initial=0.0)))
    inside = within(turns["completion_s"], span) & (turns["status"] == COMPLETED) & (turns["spoken"] == 0)
    if span is None or not is_rate(turns, inside, span):
        return None, int(inside.sum()), 0
    came = _summed(turn_keys(requests), events.loc[np.isin(events["kind"].to_numpy(), ["first_text", "text"])])
    tokens = np.where(np.isnan(turns["generated_entry"]), came, turns["generated_entry"])[inside]
    return float(tokens.sum()) / (span[1] - span[0]), int(inside.sum()), 0


def _summed(turns: np.ndarray, events: pd.DataFrame) -> np.ndarray:
    """Return the sum of the values of the events of each of `turns`, by their keys."""
    order, keys = np.argsort(turns), turn_keys(events)
    place = np.searchsorted(turns[order], keys)
    among = np.append(turns[order], -1)[place] == keys
    sums = np.zeros(turns.size)
    np.add.at(sums, order[place[among]], events["value"].to_numpy(float)[among])
    return sums


def _cache_hits(scrape: pd.DataFrame, window: Window) -> Measured:
    for queries, hits in PREFIX_CACHE:
        asked, found = (grown(scrape, name, window.begin_s, window.end_s) for name in (queries, hits))
        if asked and found is not None:
            return found / asked, round(asked), 0
    return None, 0, 0


def _window(events: pd.DataFrame, requests: pd.DataFrame, window: Window) -> dict[str, Measured]:
    values = {"on_line_mean": on_line_mean(events, window), "sessions_rps": sessions_rps(events, window)}
    return {name: (value, len(requests), 0) for name, value in values.items()}


def _floor(value: float | None) -> Measured:
    return (value, int(value is not None), int(value is None))


def _continuity(requests: pd.DataFrame) -> dict[str, Measured]:
    heard = requests.loc[requests["continuous"].notna()]
    gaps_s = heard["max_gap_s"].to_numpy(float)
    return {f"continuity_{gap_ms}ms": share(gaps_s <= gap_ms / 1e3 + 1e-9) for gap_ms in GAPS_MS}


def _benchmark(requests: pd.DataFrame) -> dict[str, np.ndarray]:
    """Return the values that vLLM-Omni's own benchmark would report of these replies. Its times count from the send."""
    done = requests.loc[requests["spoken"] & (requests["status"] == COMPLETED)]
    columns = ("audio_ttfp_s", "rtf", "underrun_fixed_s", "send_delay_s", "audio_s")
    ttfp_s, rtf, underrun_s, lag_s, audio_s = (done[name].to_numpy(float) for name in columns)
    audio_s = np.where(audio_s > 0, audio_s, np.nan)  # a reply without sound has no real-time factor
    values = [ttfp_s - lag_s, rtf - lag_s / audio_s, underrun_s]
    return {f"vllm_omni_{name}": sample for name, sample in zip(BENCHMARK, values, strict=True)}


def _audio(events: pd.DataFrame, requests: pd.DataFrame) -> dict[str, Measured]:
    spoken = requests["spoken"].to_numpy(bool)
    turns, status = turn_keys(requests)[spoken], requests["status"].to_numpy()[spoken]
    heard_s = requests["heard_s"].to_numpy(float)[spoken]
    received_s = _summed(turns, events.loc[np.isin(events["kind"].to_numpy(), ["audio", "late_audio"])])
    ended = np.isin(status, [COMPLETED, BARGED_IN])
    valid = ended & ~np.isnan(heard_s)
    total_s, n = float(received_s[valid].sum()), int(valid.sum())
    # A pause in playback counts as heard nowhere, so what was heard is at most what came.
    ratio = 1 - float(np.minimum(heard_s, received_s)[valid].sum()) / total_s if total_s else None
    return {
        "audio_received_s": (float(received_s.sum()) if turns.size else None, turns.size, 0),
        "wasted_audio_ratio": (ratio, n, turns.size - n),
    }


PREFIX_CACHE = (
    ("vllm:prefix_cache_queries_total", "vllm:prefix_cache_hits_total"),
    ("sglang:prompt_tokens_total", "sglang:cached_tokens_total"),
)
"""Counters of the tokens that a server looked up in its prefix cache, and of the tokens found there: vLLM's
(`v1/metrics/loggers.py`) and SGLang's (`srt/metrics/collector.py`)."""
LAG = "rehearsal_loop_lag_seconds"
_MOST = "rehearsal_loop_lag_most_seconds"


@dataclass(frozen=True)
class LoopLag:
    """The lag of a server's own timers, by its scraped metrics (`engines.endpoint.metrics`).

    Its loop serves sockets and engines alike. A lag that is long compared with a packet says that the machine starved
    the server, so the latencies are not the engine's. Other servers do not report it. Over `n` timers, in s. `p99_s`:
    interpolated in the server's histogram; `max_s`: the largest reported.
    """

    p99_s: float
    max_s: float | None
    n: int


def loop_lag(scrape: pd.DataFrame, window: Window) -> LoopLag | None:
    """Return the lag from the last poll before `window` to the first after it; None unless the server reports it twice.
    `scrape`: columns t_s, name, labels, value, as `harness.live.run.scrape` leaves them."""
    timers = observed(scrape, LAG, window.begin_s, window.end_s)
    p99_s = None if timers is None else timers.quantile(0.99)
    if timers is None or p99_s is None:
        return None
    told_s = scrape["t_s"].to_numpy(float)
    recent = (np.asarray(scrape["name"], str) == _MOST) & (told_s > timers.first_s) & (told_s <= timers.last_s)
    largest_s = scrape.loc[recent, "value"].dropna()
    return LoopLag(p99_s, float(largest_s.max()) if len(largest_s) else None, timers.n)


_SENDS = "over all messages and requests that clients sent"
_PROMPTS = "over the turns whose prompt the server counts"
_NULL = "measured against the null server just before, with as many sessions and processes"

LIVE_DEFINITIONS: dict[str, Definition] = {
    **statistics(("p50", "p99", "p99.9", "max"), {"send_delay": Definition(
        "s", "of the send delay: how late the load generator sent, which no server is to blame for; a point with more "
        "than 5 % of its sends later than send_delay_limit_ms is INVALID", _SENDS, "lower", digits=2)}),
    "sends": Definition("1", "messages and requests sent", _SENDS, None),
    "sends_late": Definition("1", "of these, sent later than send_delay_limit_ms allows", _SENDS, "lower"),
    "requests_repeated": Definition(
        "1", "requests that were sent a second time, as the server had just closed the kept connection: load that is "
        "not in the plan",
        "over all requests that clients sent", "lower"),
    **REPLY_DEFINITIONS,
    "tokens_stated": share_of(
        "share of written replies whose number of tokens the server states; in times between tokens a message of "
        "any other counts as one token",
        "over completed turns whose reply is not spoken", None),
    **statistics(("p50", "p90", "p99"), {"first_answer": Definition(
        "s", "time to the first text token that is not reasoning, of replies that reason first", TURN_END, "lower",
        heading="first answer", digits=0)}),
    "text_tps": Definition(
        "1/s", f"text tokens per second to all users, by the server's count where it states one; {RATE}",
        "over the replies that were complete in the steady window, and its time", "higher",
        heading="output", shown="tokens/s", digits=1),
    "prompt_tokens": Definition(
        "token", "tokens of all prompts, histories included, by the server's count", _PROMPTS, None),
    "prompt_tokens_mean": Definition("token", "mean tokens of a prompt, by the server's count", _PROMPTS, None),
    "cached_prompt_share": share_of(
        "share of the prompts' tokens that the server found in its cache, by the usage that it states", _PROMPTS, None,
        heading="cached"),
    "prefix_cache_hits": share_of(
        "share of the tokens looked up in the server's prefix cache that were there, by the server's own counters",
        "over the tokens looked up by all clients, from the last poll before the steady window to the first after it",
        None, heading="cache hits"),
    **statistics(("p50", "p99"), {"connect": Definition(
        "s", "of the time to a session that is ready: TCP, TLS, handshake and greetings; missing counts sessions that "
        "came and were never ready",
        "from the attempt to connect", "lower")}),
    "shed": Definition(
        "1", "sessions that the server did not let in", "at the client", None,
        heading="rejected", shown="sessions", digits=0),
    "disconnects": Definition("1", "sessions whose connection the server closed or lost", "over the run", "lower"),
    "on_line_mean": Definition(
        "1", "concurrent sessions, on average", "over the time of the steady window, at the client", None,
        heading="users", shown="mean", digits=1),
    "sessions_rps": Definition(
        "1/s", "sessions that arrived, per second; in an open loop to be compared with the requested rate",
        "over the time of the steady window, at the client", None, heading="arrived", shown="sessions/s", digits=2),
    **{
        f"server_lag_{which}": Definition(
            "s", f"{text} of how late the server's own loop ran its timers, where a server of ours tells it; a point "
            "whose P99 exceeds send_delay_limit_ms is INVALID: its machine starved it",
            "over the timers of its loop, one each 10 ms, in the steady window", "lower")
        for which, text in (("p99", "P99"), ("max", "largest"))
    },
    "rtp_loss": share_of(
        "packet loss: share of RTP packets lost (RFC 3550), or discarded as a later one had been played",
        "over the packets that servers sent over WebRTC", "lower", heading="packet loss"),
    **statistics(("p50",), {
        "rtp_jitter": Definition(
            "s", "of the interarrival jitter of RTP packets at the end of a call (RFC 3550)", "over calls", "lower",
            heading="jitter", digits=1),
        "rtp_buffered": Definition(
            "s", "of the mean wait of RTP packets in the listener's jitter buffer, which is part of each TTFP",
            "over calls", None, heading="buffered", digits=0)}),
    "floor_send_delay_p99": Definition("s", "P99 of the send delay of the generator itself", _NULL, "lower"),
    **{
        f"floor_ttfp_bias_{which}": Definition(
            "s", f"{which.upper()} of the time to the first answer as the client reports it, less the server's own",
            _NULL, "lower")
        for which in ("p50", "p99")
    },
    **{
        f"continuity_{gap_ms}ms": share_of(
            f"share of spoken replies without a pause beyond {gap_ms} ms; a reply that failed has one. "
            "`continuity` is the same at 100 ms",
            "over spoken turns that were not interrupted, in a player that waits for late packets", "higher",
            spoken=True)
        for gap_ms in GAPS_MS
    },
    **statistics(("p50", "p99"), {
        f"vllm_omni_{name}": Definition(
            unit, f"of vLLM-Omni's {name}: {meaning}",
            "from the send, over spoken turns that completed; vLLM-Omni's continuity is continuity_fixed_timeline",
            "lower", spoken=True)
        for name, (unit, meaning) in BENCHMARK.items()
    }),
    "audio_received_s": Definition(
        "s", "seconds of audio received, those after a barge-in included", "over started turns", None, shown="s"),
    "wasted_audio_ratio": share_of(
        "audio received and not heard over audio received; it needs nothing from the server",
        "over completed and barged-in turns", "lower", heading="wasted audio", spoken=True),
    "lost_sessions": Definition(
        "1", "sessions open when their load generator was lost; the turn under way of each, or its next one, counts as "
        "failed",
        "over the run", "lower"),
}  # fmt: skip
"""Every metric that `summarise_live` returns, in its order."""
