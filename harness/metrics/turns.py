"""Metrics of runs of turns: each with its unit, meaning, origin, direction and function.

Where a trace has classes of requests, each class has metrics of its own besides, named as `online.ttft_p90`; see
`harness.metrics.classes`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf

import numpy as np
import pandas as pd

from harness.metrics.classes import summarise_classes
from harness.metrics.definitions import MAKESPAN, PREEMPTIONS, TBT, TTFT, TURN_END, Definition, share_of, statistics
from harness.metrics.failed_turns import infinite_where_failed
from harness.metrics.metric import Measured, Metric, metrics_of, share, statistic
from harness.metrics.rates import RATE, Span, is_rate, rate_span, within
from harness.request_tables.playback import is_continuous
from harness.request_tables.request_table import (
    ABORTED,
    BARGED_IN,
    CLASS_COLUMNS,
    COLUMNS,
    COMPLETED,
    FAILED,
    REJECTED,
    UNFINISHED,
)
from harness.request_tables.stages import AR_STAGES, ENTRY, STAGES, WORDS, by_role
from harness.request_tables.steady_window import DRAIN, RAMP, STEADY, WHOLE, Window, phases

TTFP_TARGET_S = 2.0
"""Time to the first audio packet within which a turn counts for `ttfp_in_target`, in s; our choice."""
WHOLE_RUN = "_whole"
"""End of the name of a quantity that is over the whole run, start-up and end included."""

Turns = Mapping[str, np.ndarray]
"""Columns of a request table as arrays of shape (turns,); all but the status as floats, NaN where missing."""


@dataclass(frozen=True)
class TurnRun:
    """A run of turns, as its metrics read it."""

    turns: Turns
    """Turns of the steady window."""
    every: Turns
    """Turns of the whole run."""
    phases: np.ndarray
    """The phase of each of `every`."""
    window: Window
    steps: pd.DataFrame
    """Engine steps, in which the stage that requests come to first is called `ENTRY`."""
    run_end_s: float
    """End of the run after its drain, s."""
    planned_turns: int | None
    planned_sessions: np.ndarray | None
    """The session of each turn of the trace."""


def summarise(
    requests: pd.DataFrame,
    steps: pd.DataFrame,
    run_end_s: float,
    *,
    window: Window = WHOLE,
    planned_turns: int | None = None,
    planned_sessions: np.ndarray | None = None,
    entry: str = ENTRY,
) -> dict[str, Metric]:
    """Return all metrics of one run, by the names and in the order of `DEFINITIONS`, then those of stages by other
    names and of each class if it has any.

    `requests` is a request table, `steps` the engine steps (may be empty: then KV occupancy is missing), `run_end_s`
    the end of the run after its drain in s, `window` the part of the run that percentiles, shares and rates are over,
    `planned_turns` the number of turns in the trace, which gives the number never started, `planned_sessions` the
    session of each. `entry`: name, in the steps, of the stage that requests come to first.
    """
    phase = phases(requests, window)
    every, turns = columns_of(requests), columns_of(requests.loc[phase == STEADY])
    steps = by_role(steps, entry)
    run = TurnRun(turns, every, phase, window, steps, run_end_s, planned_turns, planned_sessions)
    vocabulary = dict(DEFINITIONS)
    if (every["status"] == REJECTED).any():
        vocabulary |= REJECTED_DEFINITIONS
    for stage in sorted({*np.asarray(steps["stage"], str).tolist()} - {*STAGES}):
        vocabulary |= stage_use_definitions(stage)
    span = rate_span(every, window, run_end_s)
    return metrics_of(run, vocabulary, _MEASURES) | summarise_classes(turns, every, span)


def columns_of(requests: pd.DataFrame) -> Turns:
    """Return the columns of a request table that metrics read."""
    return {
        name: np.asarray(requests[name]) if dtype == "str" else _floats(requests, name)
        for name, (dtype, _) in (COLUMNS | CLASS_COLUMNS).items()
        if name in requests
    }


def _floats(table: pd.DataFrame, column: str) -> np.ndarray:
    return pd.Series(table[column]).to_numpy(float, na_value=np.nan)


@dataclass(frozen=True, slots=True)
class Distribution:
    """A column of the request table, summarised by statistics over started turns."""

    column: str
    statistics: tuple[str, ...]
    """Percentiles, and mean, that every run has. Any other percentile can be asked for."""
    meaning: Definition
    spoken_only: bool = False
    whole_only: bool = False
    """Without barged-in turns."""
    failed_late: bool = True
    """A turn that failed counts as infinitely late, whatever came before it broke."""
    whole_run: bool = False
    """Over all turns of the run, not only those of the steady window."""

    def sample(self, turns: Turns) -> np.ndarray:
        """Return a value for each started turn that the statistics are over: infinite for one that failed, and NaN for
        one that has no such value.

        A turn without an answer at the end of the run, and a spoken reply without sound, are infinitely late as well.
        A reply that began before its user had finished has no latency.
        """
        status, values = turns["status"], turns[self.column]
        over = np.ones(status.size, bool)
        if self.spoken_only:
            over &= turns["spoken"] > 0
        if self.whole_only:
            over &= ~np.isin(status, [BARGED_IN, ABORTED])
        if self.failed_late:
            values = infinite_where_failed(status, values)
            if self.spoken_only:
                values = np.where((status == COMPLETED) & (turns["packets"] == 0), inf, values)
        return values[over]


_TAIL = ("p50", "p90", "p95", "p99", "mean")
_BODY = ("p50", "p90")


def from_turn_end(distribution: Distribution) -> bool:
    """Return whether it is a time that counts from the scheduled end of the user's turn."""
    return distribution.meaning.unit == "s" and distribution.meaning.origin == TURN_END


def _queueing(stage: str) -> Distribution:
    meaning = Definition(
        "s",
        f"wait in the queue of the {WORDS[stage]} until the first step that schedules the request",
        f"from the arrival at the {WORDS[stage]}",
        "lower",
    )
    return Distribution(f"queueing_{stage}_s", _BODY, meaning, spoken_only=stage != ENTRY, failed_late=False)


DISTRIBUTIONS: dict[str, Distribution] = {
    "audio_ttfp": Distribution(
        "audio_ttfp_s", _TAIL, Definition(
            "s", "time to the first non-empty audio packet of a spoken reply, barged-in or not; a turn that failed or "
            "had no audio counts as infinitely late; a reply that began before the caller had finished is left out",
            TURN_END, "lower", heading="TTFP", digits=0),
        spoken_only=True),
    "ttft": Distribution("ttft_s", _TAIL, TTFT),
    "tbt": Distribution("tbt_mean_s", _BODY, TBT),
    "e2e": Distribution(
        "e2e_s", _BODY,
        Definition(
            "s", "time to the last message of the reply; without barged-in turns", TURN_END, "lower", heading="E2E"),
        whole_only=True),
    "rtf": Distribution(
        "rtf", _BODY, Definition(
            "1", "real-time factor: time to the last audio packet over seconds of audio; without barged-in turns; "
            "tends to 1 when generation is paced to playback", TURN_END, None, heading="RTF"),
        spoken_only=True, whole_only=True),
    "rtf_gen": Distribution(
        "rtf_gen", _BODY, Definition(
            "1", "real-time factor without the TTFP: first to last audio packet over seconds of audio; without "
            "barged-in turns; missing for a reply of one packet",
            "from the first audio packet, at the client", None),
        spoken_only=True, whole_only=True),
    "max_gap": Distribution(
        "max_gap_s", _BODY, Definition(
            "s", "a reply's longest pause in a player that waits for late packets; without barged-in turns",
            "from the end of the audio received so far to the next packet", "lower"),
        spoken_only=True, whole_only=True),
    **{f"queueing_{stage}": _queueing(stage) for stage in STAGES},
    "reload": Distribution(
        "reload_s", ("p50", "p90", "mean"), Definition(
            "s", "wait at the first stage for KV from host memory before its first step; 0 where the history was there",
            "from the arrival at the first stage, as far as it waited for transfers", "lower"),
        failed_late=False),
    "turn_send_delay": Distribution(
        "send_delay_s", ("p99",), Definition(
            "s", "lateness of the load generator itself; a run with a material lag is invalid, not slow",
            "from the scheduled end of the user's turn to its actual send", "lower"),
        failed_late=False),
}  # fmt: skip
DISTRIBUTIONS |= {
    f"{name}{WHOLE_RUN}": replace(
        DISTRIBUTIONS[name],
        meaning=replace(
            DISTRIBUTIONS[name].meaning,
            definition=f"{DISTRIBUTIONS[name].meaning.definition}; over the whole run",
            heading=f"{DISTRIBUTIONS[name].meaning.heading} whole",
        ),
        whole_run=True,
    )
    for name in ("audio_ttfp", "ttft", "tbt", "e2e", "rtf")
}


def _distributions(run: TurnRun) -> dict[str, np.ndarray]:
    return {
        name: distribution.sample(run.every if distribution.whole_run else run.turns)
        for name, distribution in DISTRIBUTIONS.items()
    }


def _waste(run: TurnRun) -> dict[str, Measured]:
    turns, measured = run.turns, {}
    for name, stages in [("", AR_STAGES), *((f"_{stage}", (stage,)) for stage in AR_STAGES)]:
        generated = np.array([turns[f"generated_{stage}"] for stage in stages])
        heard = np.array([turns[f"heard_{stage}"] for stage in stages])
        unknown = (~np.isnan(generated) & np.isnan(heard)).any(axis=0)
        used = (~np.isnan(generated)).any(axis=0) & ~unknown
        n, missing = int(used.sum()), int(unknown.sum())
        tokens, tokens_heard = float(np.nansum(generated[:, used])), float(np.nansum(heard[:, used]))
        ratio = (tokens - tokens_heard) / tokens if tokens else None
        measured[f"wasted_token_ratio{name}"] = (ratio, n, missing)
        measured[f"generated_tokens{name}"] = (tokens if n else None, n, missing)
        measured[f"heard_tokens{name}"] = (tokens_heard if n else None, n, missing)
    return measured


def _rates(run: TurnRun) -> dict[str, Measured]:
    span = rate_span(run.every, run.window, run.run_end_s)
    rate, inside, outside, missing = completed_rps(run.every, span)
    effective, spoken = effective_rps(run.every, span)
    whole = rate_span(run.every, WHOLE, run.run_end_s)
    return {
        "completed_rps": (rate, inside, missing),
        "completed_outside_window": (float(outside), inside + outside, missing),
        "effective_rps": (effective, spoken, 0),
        f"completed_rps{WHOLE_RUN}": (*completed_rps(run.every, whole)[:2], missing),
        f"effective_rps{WHOLE_RUN}": (*effective_rps(run.every, whole), 0),
        "steady_begin": (None if run.window.whole else run.window.begin_s, run.phases.size, 0),
        "steady_end": (None if run.window.whole else min(run.window.end_s, run.run_end_s), run.phases.size, 0),
        "turns_in_ramp": (float((run.phases == RAMP).sum()), run.phases.size, 0),
        "turns_in_drain": (float((run.phases == DRAIN).sum()), run.phases.size, 0),
    }


def _shares(run: TurnRun) -> dict[str, Measured]:
    turns = run.turns
    spoken = turns["spoken"] > 0
    in_target = (turns["audio_ttfp_s"] <= TTFP_TARGET_S) & (turns["status"] != FAILED)
    early = np.isnan(turns["audio_ttfp_s"]) & (turns["packets"] > 0)
    started_s = run.every["turn_start_s"]
    makespan_s = float(run.run_end_s - started_s.min()) if started_s.size else None
    return {
        "continuity": share(turns["continuous"]),
        f"continuity{WHOLE_RUN}": share(run.every["continuous"]),
        "continuity_fixed_timeline": share(turns["continuous_fixed"]),
        "ttfp_in_target": share(in_target[spoken & ~early]),
        "makespan": (makespan_s, started_s.size, 0),
        "barge_in_rate": share(turns["status"][spoken] == BARGED_IN),
        "barge_in_missed_rate": share(turns["barge_in_missed"][spoken]),
    }


def _counts(run: TurnRun) -> dict[str, Measured]:
    status = run.every["status"]
    n = status.size
    never_started = 0 if run.planned_turns is None else run.planned_turns - n
    return {
        "started": (float(n), n, never_started),
        **{name: (float((status == name).sum()), n, 0) for name in (COMPLETED, BARGED_IN, FAILED, UNFINISHED)},
        "shed": (float((status == REJECTED).sum()), n, 0),
        "preemptions": statistic(run.every["preemptions"], "sum"),
    }


def _reloads(run: TurnRun) -> dict[str, Measured]:
    turns, steps = run.every, run.steps
    waited_s = run.turns["reload_s"]
    at_entry = np.asarray(steps["stage"]) == ENTRY
    prefill = float(_floats(steps, "prefill_tokens")[at_entry].sum()) if at_entry.any() else None
    return {
        "reloaded_turns": share(np.where(np.isnan(waited_s), np.nan, waited_s > 0)),
        "reloaded_blocks": statistic(turns["reload_blocks"], "sum"),
        "preloaded_blocks": statistic(turns["preloaded_blocks"], "sum"),
        "prefill_tokens_entry": (prefill, int(at_entry.sum()), 0),
    }


def _kv_occupancy(run: TurnRun) -> dict[str, Measured]:
    steps = run.steps
    stages = np.asarray(steps["stage"])
    used, blocks, t_s, dt_s = (_floats(steps, name) for name in ("kv_used", "kv_blocks", "t_s", "dt_s"))
    replicas, ends_s = np.asarray(steps["replica"]), t_s + dt_s
    values = {}
    for stage in STAGES:
        # A stage without a KV cache has no blocks to occupy.
        rows = (stages == stage) & (blocks > 0)
        held = capacity = 0.0
        for replica in np.unique(replicas[rows]):
            of_replica = rows & (replicas == replica)
            # Steps report what is in use when they end, and that stays so until the next one has ended.
            lasts_s = np.diff(ends_s[of_replica], append=max(run.run_end_s, ends_s[of_replica][-1]))
            held += float((used[of_replica] * lasts_s).sum())
            capacity += float((blocks[of_replica] * lasts_s).sum())
        n = int(rows.sum())
        values[f"kv_block_seconds_{stage}"] = (held if n else None, n, 0)
        values[f"kv_occupancy_{stage}_mean"] = (held / capacity if capacity else None, n, 0)
        values[f"kv_occupancy_{stage}_peak"] = (float((used[rows] / blocks[rows]).max()) if n else None, n, 0)
    return values


def completed_rps(turns: Turns, span: Span | None) -> tuple[float | None, int, int, int]:
    """Return completions per second of the span, and the completions inside it, outside it, and without a time. The
    rate is None where `is_rate` says so."""
    completion_s = _completion_s(turns)
    inside, ended = within(completion_s, span), ~np.isnan(completion_s)
    n = int(inside.sum())
    missing = int(np.isin(turns["status"], [COMPLETED, BARGED_IN]).sum() - ended.sum())
    rate = n / (span[1] - span[0]) if span and is_rate(turns, inside, span) else None
    return rate, n, int(ended.sum()) - n, missing


def effective_rps(turns: Turns, span: Span | None, ttfp_s: float = inf) -> tuple[float | None, int]:
    """Return the spoken turns per second of the span that completed, or were cut short, without a pause in playback
    and began within `ttfp_s` seconds, and the number of spoken turns that ended inside it. The rate is None where
    `is_rate` says so, and where nothing is spoken."""
    spoken = turns["spoken"] > 0
    inside = within(_completion_s(turns), span) & spoken
    if span is None or not is_rate(turns, inside, span):
        return None, int(inside.sum())
    # Only completed and barged-in turns have a largest gap.
    unbroken = np.fromiter(map(is_continuous, turns["max_gap_s"]), bool)
    effective = float((inside & unbroken & (turns["audio_ttfp_s"] <= ttfp_s)).sum())
    return effective / (span[1] - span[0]), int(inside.sum())


def _completion_s(turns: Turns) -> np.ndarray:
    ended = np.isin(turns["status"], [COMPLETED, BARGED_IN])
    return np.where(ended, turns["completion_s"], np.nan)


def _stage_use(run: TurnRun) -> dict[str, Measured]:
    """Return the metrics of `stage_use_definitions` for the stages of a spoken reply, and for each other one that ran a
    step. Steps of a replica follow one another, so the sum of their lengths within the span is the time it was busy."""
    steps, begin_s, end_s = run.steps, run.every["turn_start_s"].min(initial=inf), run.run_end_s
    stages = np.asarray(steps["stage"], str)
    t_s, dt_s = (steps[name].to_numpy(float) for name in ("t_s", "dt_s"))
    within_s = np.clip(np.minimum(t_s + dt_s, end_s) - np.maximum(t_s, begin_s), 0.0, None)
    decoded = (steps["tokens"] - steps["prefill_tokens"]).to_numpy(float)
    measured: dict[str, Measured] = {}
    for stage in [*STAGES, *sorted(set(stages) - set(STAGES))]:
        rows = stages == stage
        replicas = np.unique(np.asarray(steps["replica"])[rows]).size
        span_s = (end_s - begin_s) * replicas
        batch = decoded[rows & (decoded > 0)]
        n = int(rows.sum())
        measured[f"busy_{stage}"] = (float(within_s[rows].sum() / span_s) if n and span_s > 0 else None, n, 0)
        for which, reduce in (("mean", np.mean), ("peak", np.max)):
            value = float(reduce(batch)) if batch.size else None
            measured[f"decode_batch_{stage}_{which}"] = (value, batch.size, 0)
    return measured


def _of_sessions(run: TurnRun) -> dict[str, np.ndarray]:
    """Return the metrics of sessions whose first turn is in the steady window, of all where none is. Sessions of one
    turn are requests, so a trace without longer ones has no such metric."""
    turns = run.every
    time_s, pace = _whole(turns, turns["session"] if run.planned_sessions is None else run.planned_sessions)
    if time_s.size:
        _, first = np.unique(turns["session"], return_index=True)
        steady = run.phases[first] == STEADY
        if steady.any():
            time_s, pace = time_s[steady], pace[steady]
    return {"session_time": time_s, "session_pace": pace}


def _whole(turns: Turns, planned: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the seconds of each started session and its turns per minute; NaN where one of its turns has not ended."""
    ids, counts = np.unique(planned, return_counts=True)
    if not counts.size or counts.max() == 1:
        return np.empty(0), np.empty(0)
    started, of_session = np.unique(turns["session"], return_inverse=True)
    wanted = counts[np.searchsorted(ids, started)]
    ended = np.isin(turns["status"], [COMPLETED, BARGED_IN])
    whole = np.bincount(of_session, ended, started.size) == wanted
    first_s, last_s = np.full(started.size, np.inf), np.full(started.size, -np.inf)
    np.minimum.at(first_s, of_session, turns["turn_start_s"])
    with np.errstate(invalid="ignore", divide="ignore"):
        np.maximum.at(last_s, of_session, turns["completion_s"])
        time_s = np.where(whole, last_s - first_s, np.nan)
        return time_s, np.where(time_s > 0, 60 * wanted / time_s, np.nan)


_OF_STARTED = "over all turns that users started"
_FROM_START = "from the start of the run"
_IN_USE = "from the end of the first step to the end of the run; in use means referenced, not merely cached"
_OF_SPOKEN = "over turns of the steady window with a spoken reply"


def _waste_definitions(suffix: str, tokens: str, spoken: bool = False) -> dict[str, Definition]:
    origin = (
        "over turns of the steady window with known generated and heard tokens; a reply that ends by itself was heard "
        "in full; prefill, preload and recomputation do not count as generated"
    )
    return {
        f"wasted_token_ratio{suffix}": share_of(
            f"generated and not heard over generated: {tokens}",
            origin,
            "lower",
            heading=f"wasted tokens{suffix.replace('_', ' ')}",
            spoken=spoken,
        ),
        f"generated_tokens{suffix}": Definition("token", f"generated: {tokens}", origin, None, spoken=spoken),
        f"heard_tokens{suffix}": Definition("token", f"heard by users: {tokens}", origin, None, spoken=spoken),
    }


def stage_use_definitions(stage: str) -> dict[str, Definition]:
    """Return the definitions of the metrics of a stage of any name."""
    named = WORDS.get(stage, stage)
    return {
        f"busy_{stage}": share_of(
            f"share of the time in which a replica of the {named} ran a step, over replicas that ran any; n is "
            "the steps",
            "over the makespan",
            None,
        ),
        **{
            f"decode_batch_{stage}_{which}": Definition(
                "1",
                f"{text} requests that a step of the {named} decodes together, a token each",
                "over its steps that decode, however long each takes",
                None,
            )
            for which, text in (("mean", "mean number of"), ("peak", "most"))
        },
    }


def _session_definitions() -> dict[str, Definition]:
    origin = (
        "over sessions of a trace in which any has several turns, begun in the steady window, all where none is; "
        "missing are sessions in which not every turn ended by itself or by a barge-in"
    )
    time = "time from the begin of a session's first turn to the completion of its last: of an agent, its episode"
    pace = "turns of a session per minute of that time: of an agent, its actions; all agents' are in completed_rps"
    return statistics(("p50", "p90", "mean"), {
        "session_time": Definition(
            "s", f"over sessions: {time}", origin, "lower", heading="session", shown="s"),
        "session_pace": Definition(
            "1/min", f"over sessions: {pace}", origin, "higher", heading="turns", digits=1),
    })  # fmt: skip


REJECTED_DEFINITIONS: dict[str, Definition] = {
    "shed": Definition(
        "1", "turns that admission rejected, each with its session; they have no latencies, did not fail, and met no "
        "deadline; only where there are any",
        _OF_STARTED, None, heading="rejected", shown="sessions", digits=0),
}  # fmt: skip
"""Metrics of replays in which admission rejected a turn."""

_SINGLE: dict[str, Definition] = {
    "continuity": share_of(
        "share of spoken replies in which no pause of a player that waits for late packets exceeds 100 ms; failed "
        "and unfinished turns and replies without audio count as not continuous",
        f"{_OF_SPOKEN}, without barged-in ones", "higher", spoken=True),
    "continuity_fixed_timeline": share_of(
        "the same share with vLLM-Omni's player, which never waits: lateness against the first packet accumulates "
        "and must stay within 100 ms",
        f"{_OF_SPOKEN}, without barged-in ones", "higher", heading="cumulative",
        spoken=True),
    **_waste_definitions("", "text tokens of the first stage and codec frames of the talker together"),
    **_waste_definitions(f"_{ENTRY}", "text tokens of the first stage"),
    **_waste_definitions("_talker", "codec frames of the talker", spoken=True),
    f"continuity{WHOLE_RUN}": share_of(
        "continuity over the whole run", "over all started turns with a spoken reply, without barged-in ones", "higher",
        heading="continuity whole", spoken=True),
    "completed_rps": Definition(
        "1/s", "completions in the steady window, per second of it; a barged-in turn completes at the barge-in",
        f"n is the completions inside the window; {RATE}", "higher", heading="completed"),
    "completed_outside_window": Definition(
        "1", "completions that completed_rps leaves out", "over completed and barged-in turns", None),
    "effective_rps": Definition(
        "1/s", "of the turns of completed_rps the spoken ones that were continuous, or were barged in before a pause "
        "above 100 ms, whatever their TTFP; per second of the same window",
        f"n is the spoken turns that ended inside the window; {RATE}", "higher", heading="effective",
        spoken=True),
    f"completed_rps{WHOLE_RUN}": Definition(
        "1/s", "completions of the whole run, per second of its makespan", f"n is the completions; {RATE}", "higher",
        heading="completed whole"),
    f"effective_rps{WHOLE_RUN}": Definition(
        "1/s", "effective_rps over the whole run and its makespan", f"n is the spoken turns that ended; {RATE}",
        "higher", heading="effective whole", spoken=True),
    "steady_begin": Definition(
        "s", "begin of the steady window: as many requests have ended as there are slots, or, in an open loop, the "
        "first user comes; missing where the run has no steady part, and is measured whole",
        _FROM_START, None, shown="s"),
    "steady_end": Definition(
        "s", "end of the steady window: after the last session has come, the first one leaves, in an open loop the "
        "last request goes out, or no new turn may begin; missing where the run is measured whole", _FROM_START, None,
        shown="s"),
    "turns_in_ramp": Definition(
        "1", "turns that were asked before the steady window", _OF_STARTED, None),
    "turns_in_drain": Definition(
        "1", "turns that were asked after the steady window", _OF_STARTED, None),
    "ttfp_in_target": share_of(
        f"share of spoken turns with a TTFP of at most {TTFP_TARGET_S:g} s, without early replies", _OF_SPOKEN,
        "higher", spoken=True),
    "makespan": MAKESPAN,
    "started": Definition(
        "1", "turns that users started; missing counts turns of the trace that never started: turns after a failed "
        "one, and turns that would begin after stop_after_s", _OF_STARTED, None),
    "completed": Definition("1", "turns whose reply ended by itself", _OF_STARTED, "higher"),
    "barged_in": Definition("1", "turns whose reply the user cut short", _OF_STARTED, None),
    "failed": Definition(
        "1", "turns that ended in an error or a timeout", _OF_STARTED, "lower", shown="turns", digits=0),
    "unfinished": Definition("1", "turns still going at the end of the run", _OF_STARTED, "lower"),
    "barge_in_rate": share_of("share of replies that the user cut short", _OF_SPOKEN, None, spoken=True),
    "barge_in_missed_rate": share_of(
        "share of replies that had ended before the time that the workload drew for the user's interruption; of "
        "users who never interrupt it is 0", _OF_SPOKEN, None, spoken=True),
    **{
        f"kv_occupancy_{stage}_{which}": share_of(
            f"{text} share of the KV blocks of the {WORDS[stage]} in use", _IN_USE, None)
        for stage in STAGES
        for which, text in (("mean", "mean over time"), ("peak", "largest"))
    },
    **{
        f"kv_block_seconds_{stage}": Definition(
            "block*s", f"KV blocks of the {WORDS[stage]} in use, integrated over time", _IN_USE, "lower")
        for stage in STAGES
    },
    **{name: each for stage in STAGES for name, each in stage_use_definitions(stage).items()},
    **_session_definitions(),
    "reloaded_turns": share_of(
        "share of turns that waited for KV from host memory", "over turns of the steady window that the first stage "
        "started", "lower"),
    "reloaded_blocks": Definition(
        "block", "KV blocks loaded from host memory while their turn waited", _OF_STARTED, "lower"),
    "preloaded_blocks": Definition(
        "block", "KV blocks that turns found because they were loaded before they came", _OF_STARTED, None),
    "prefill_tokens_entry": Definition(
        "token", "prompt tokens that the first stage computed: new ones, and history whose KV was gone",
        "over its steps", "lower"),
    "preemptions": PREEMPTIONS,
}  # fmt: skip


def _expanded() -> dict[str, Definition]:
    return {
        metric: meaning
        for name, each in DISTRIBUTIONS.items()
        for over in [
            replace(each.meaning, definition=f"over turns: {each.meaning.definition}", spoken=each.spoken_only)
        ]
        for metric, meaning in statistics(each.statistics, {name: over}).items()
    }


DEFINITIONS: dict[str, Definition] = _expanded() | _SINGLE
"""Every metric that `summarise` returns, in its order."""
_MEASURES = (_distributions, _waste, _rates, _shares, _counts, _reloads, _kv_occupancy, _stage_use, _of_sessions)
