"""Common parts of LiveServe's cards: its server, the meaning of its concurrency, and the chosen settings.

The server is the paper's own: eight GPUs with four thinkers and four talkers, on vLLM-Omni of June 2026, whose step
times are held against public runs (docs/fidelity.md). The paper says neither what c counts nor how long prompts and
replies are. Here c counts requests in flight on the whole server, as a benchmark's limit of concurrency does; cards
with sessions load one pair of thinker and talker, and there c is the limit of that pair. A user begins when a slot is
free, so nobody speaks and then waits outside the server, where no latency would count. The slot is free again when the
stream has ended, as in vLLM-Omni's own benchmark (0.20.0, `benchmarks/patch/patch.py`). Requests go to replicas in turn
(`engine/stage_pool.py` 107 to 130). The first packet has 25 codec frames (`deploy/qwen3_omni_moe.yaml` 17 to 21).
Typed prompts have 2,500 tokens in the median, as in vLLM-Omni's public runs; this length was chosen with the baseline's
median TTFP in view (card `liveserve-testbed` varies it). Replies to them last 65.9 s in the median, as the one reply
that the paper shows. No constant was fitted to the paper.

c binds in every card with slots: there are many times more requests than slots, or more users than the server can
answer at once. Percentiles, continuity and rates are those of the steady window.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from harness.metrics.turns import Turns, columns_of, completed_rps, effective_rps
from harness.request_tables.request_table import COMPLETED, typed
from reports.claims.bands import of_mean, of_percentile
from reports.claims.quantities import Quantity, Setting, value
from reports.claims.stated import contradiction
from reports.figures.forms import Plot, lines
from reports.figures.shared_turns import ReplyLog, TurnLog
from reports.papers.experiment import experiment
from reports.runs.measured import Measured

BASELINES = ["vllm_omni_wo", "vllm_omni"]
"""The paper's two, without and with KV offload."""

PAIR = ["vllm_omni", "liveserve"]
"""Engines of claims that compare with the offloading baseline alone."""

SEEDS = [0, 1, 2, 3, 4]

N = 64
"""Requests behind a number of the paper for which it names none: four of the five shares of Fig. 11 right are multiples
of 1/64 (91.8 % is not)."""

TTFP_SIGMA = 0.37
"""Log-normal sigma of the TTFP of typed turns: 1.38 s over 0.86 s, P90 and median of the baseline in Fig. 11 left."""

TYPED_P90 = of_percentile(0.9, N, TTFP_SIGMA)
SPOKEN_P90 = of_percentile(0.9, N)
"""For sessions of several turns: the paper prints no percentiles that give a sigma."""
RPS = of_mean(N)

PROMPT = "the length of prompts was chosen with this number in view; see liveserve-testbed"

AWAITED = (
    "we added await_text after trying the ready set of Algorithm 1 alone, with which, unpaced, the P90 TTFP falls by a "
    "tenth at most"
)
"""A choice that was made with LiveServe's TTFP in view."""

PACED = "it depends on lead_cap_s, which we took from Fig. 15 right"
"""Another one."""

QWEN = "qwen3_omni_8gpu"
"""The paper's server."""

PAIR_OF_QWEN = "qwen3_omni_2gpu_june"
"""One thinker and one talker of it, for sessions of several turns: their KV must stay with one replica."""

SERVED: dict[str, Any] = {
    "deployment": QWEN,
    "routing": "round_robin",
    "talker_routing": "round_robin",
    "first_chunk_frames": 25,
    "c_scope": "deployment",
    "c_counts": "request",
}

PROMPTS: dict[str, Any] = {"prompt_tokens": 2500, "prompt_sigma": 0.8, "max_prompt_tokens": 16_000}
"""Prompts of typed turns, in tokens. The median is that of vLLM-Omni's public runs; the spread is [chosen]."""

LONG_TOKENS = 235
"""Text of a reply that lasts for the 65.9 s of Fig. 15 right at the median pace."""

REPLIES: dict[str, Any] = {"reply_tokens": LONG_TOKENS, "max_reply_tokens": 1500}
"""Replies to typed prompts, text tokens: the median is that of the only reply whose length the paper states, and near
the 300 of ShareGPT-90k. [chosen] A reply to speech has 60."""

SHAREGPT: dict[str, Any] = {**SERVED, **PROMPTS, **REPLIES, "modality": "text", "requests": 192, "rate": 20.0}
"""Single turns, typed and answered in speech, offered faster than c lets them in; workload `sharegpt`. The requests are
twelve for each slot at c = 16, the largest of Figs. 10, 11 and 15."""

AT_8: dict[str, Any] = {**SHAREGPT, "requests": 128, "c": 8}
"""The same at c = 8: sixteen requests for each slot."""

OPEN_LOOP: dict[str, Any] = {
    **{name: value for name, value in SHAREGPT.items() if name not in ("c_scope", "c_counts", "rate")},
    "reply_tokens": 60,
    "max_reply_tokens": 512,
    "requests": 1500,
    "stop_after_s": 90.0,
}
"""The same at a `rate` to be set, without slots to wait for, for a minute and a half. Replies last 17 s in the median,
so that this is several replies long. [chosen]"""

BURSTS = {name: value for name, value in SHAREGPT.items() if name != "rate"}
"""The same users with BurstGPT arrivals, at a `rate` or `peak_rate` to be set; workload `burstgpt_fit` with
ShareGPT's prompts instead of its own."""

LONG_REPLY: dict[str, Any] = {
    **SERVED,
    "modality": "text",
    "requests": 1,
    "reply_tokens": LONG_TOKENS,
    "reply_sigma": 0,
    "c": 1,
    "p": 0,
}
"""One reply, served alone; workload `sharegpt`."""

HALVED = contradiction(
    "Fig. 13 has the P90 TTFP cut by more than half at c = 8 and p = 0.5 (section 7.2)",
    "Fig. 15 left from 1.54 to 0.91 s, × 0.59, for the same workload, c and p (section 7.3)",
)

TAIL = (
    "the slowest tenth of the turns have prompts of 6,000 tokens in the median, whose prefill takes as long under both "
    "systems"
)
"""Reason why LiveServe gains less at P90 and P95 than at the median of our runs of typed prompts."""

FEW_IN_FLIGHT = (
    "at c = 8 four replies are under way and the other users speak, so first packets compete with few others"
)
"""The same for spoken sessions."""

SPREAD_OUT = (
    "at c = 8 each pair of thinker and talker has two requests in flight, so first packets hardly wait for others; the "
    "paper does not say what c counts (liveserve-testbed)"
)
"""Reason why TTFPs are shorter in our runs."""

SHORTER = (
    "a talker's step takes 9.9 ms with one request and 12.3 ms with four, so short steps for first packets make less "
    "audio in total, and every request keeps its slot longer"
)
"""Reason why LiveServe completes fewer requests in our runs."""

HELD = (
    "a paced reply keeps its slot until its stream ends, near the end of playback, so fewer requests begin; the paper "
    "does not say when a slot is free"
)
"""The same where users interrupt."""

CURRENT_TURN: dict[str, Any] = {"prefill_ahead_s": 1.0}
"""LiveServe's prefill of the current turn while the user speaks (section 3)."""

WARM_SESSIONS: dict[str, Any] = {
    **SERVED,
    "deployment": PAIR_OF_QWEN,
    "modality": "audio",
    "reply": "speech",
    "turns_shape": 100,
    "prompt_sigma": 0.5,
    "opening_tokens": 16_000,
    "opening_turn": True,
    "talker_history": True,
}
"""Spoken sessions that begin with 16,000 tokens of context, served once; workload `interactive`. The paper's sessions
come back with their context. So the context is a turn of its own, answered with one token of text: turn 0, which no
metric of speech counts, and every later turn returns. Talkers keep KV over turns, too (section 5, footnote 1)."""

INTERACTIVE: dict[str, Any] = {
    **WARM_SESSIONS,
    "sessions": 48,
    "rate": 48.0,
    "turns": 40,
    "stop_after_s": 240.0,
    "kv_pool_blocks": 24_576,
}
"""48 such users, who stay until the end: more than a pair can answer at c = 16, so that c binds. All come in the first
second and wait for slots in turn, so their contexts are served before the first of them has spoken. About 1,020 blocks
each share a thinker's pool of 24,576: a pressure ratio (context of all over pool) of 2.0."""

MIXED: dict[str, Any] = {
    **SERVED,
    "deployment": PAIR_OF_QWEN,
    "sessions": 144,
    "rate": 24.0,
    "turns": 40,
    "stop_after_s": 240.0,
    "kv_pool_blocks": 24_576,
    "talker_history": True,
    "truncate_prompts": True,
}
"""Viewers of videos, whose longest contexts are cut, and voice sessions, half of each, who stay until the end; workload
`omni_mix`. Nobody begins with a context: a viewer is shown another minute of video with every question."""

experiment = partial(experiment, seeds=SEEDS, timeout_s=600)


def reply_log(point: Measured) -> ReplyLog | None:
    """The reply of a point with one request, in s since the end of the user's turn; None unless heard to its end."""
    row = point.requests.iloc[0].to_dict()
    if row["status"] != COMPLETED:
        return None
    return ReplyLog(TurnLog(point.events(row["session"]), row["turn_end_s"]), row)


def of_reply(read: Callable[[ReplyLog], float]) -> Quantity:
    """A number of that reply."""

    def quantity(point: Measured) -> float | None:
        log = reply_log(point)
        return None if log is None else float(read(log))

    return quantity


def spoken_turns(point: Measured) -> Turns:
    """All turns with a spoken reply, as metrics read them."""
    return columns_of(typed(point.all_requests.loc[point.all_requests["spoken"]]))


def effective_within(ttfp_s: float) -> Callable[[Measured], float | None]:
    """`effective_rps` of the turns that began within `ttfp_s` seconds, 1/s."""
    return lambda point: effective_rps(spoken_turns(point), point.span, ttfp_s)[0]


def spoken_rps(point: Measured) -> float | None:
    """`completed_rps` of the turns with a spoken reply, 1/s: without the contexts with which sessions begin."""
    return completed_rps(spoken_turns(point), point.span)[0]


LIMITS_S = np.linspace(0.25, 2.5, 46)
"""Limits of the TTFP over which effective RPS is drawn: the paper names none."""


def over_limits(settings: Mapping[str, Setting], paper: Mapping[str, float] | None = None, **axes: Any) -> Plot:
    """Effective RPS over the limit of the TTFP; the paper's, which names no limit, at the right end."""
    series = {
        engine: {limit: value(effective_within(limit), at) for limit in LIMITS_S} for engine, at in settings.items()
    }
    marks = {engine: {LIMITS_S[-1]: rate} for engine, rate in (paper or {}).items()}
    return lines(None, series, marks=marks, xlabel="limit of the TTFP, s", **axes)


def at_thinker(point: Measured) -> pd.DataFrame:
    """By session and turn, of returning turns: when its request came to the thinker (arrive), and its first step and
    its last there (start, finish), s."""
    events = point.record.table("events")
    known = events["kind"].isin(["arrive", "start", "finish"])
    rows = events.loc[(events["stage"] == "thinker") & known & (events["turn"] > 0)]
    return rows.set_index(["session", "turn", "kind"])["t"].unstack()


def second_turn(point: Measured, session: int) -> dict[str, Any]:
    """Return what is known in the request table of the turn with which this session comes back: one turn of a
    controlled trace, whatever the steady window is."""
    requests = point.all_requests
    rows = requests.loc[(requests["session"] == session) & (requests["turn"] == 1)]
    return rows.iloc[0].dropna().to_dict() if len(rows) else {}


def coming_back(session: int, column: str) -> Quantity:
    """A column of the request table at that turn."""
    return lambda point: second_turn(point, session).get(column)


def returning(column: str, percentile: float) -> Quantity:
    """A percentile of a column of the request table over the turns of the steady window that are not their session's
    first, which brings its context."""

    def quantity(point: Measured) -> float | None:
        turns = point.requests
        values = turns.loc[turns["turn"] > 0, column].dropna()
        return float(np.percentile(values, percentile)) if len(values) else None

    return quantity
