"""Common parts of LiveServe's cards: its server, the meaning of its concurrency, and the chosen settings.

The server is the paper's own: eight GPUs with four thinkers and four talkers, on vLLM-Omni of June 2026, whose step
times are held against public runs (docs/fidelity.md). The paper says neither what c counts nor how long prompts are.
Here c counts requests at each pair of thinker and talker, and a slot is free when the stream has ended, as in
vLLM-Omni's own benchmark (0.20.0, `benchmarks/patch/patch.py`). Requests go to replicas in turn
(`engine/stage_pool.py` 107 to 130). The first packet has 25 codec frames (`deploy/qwen3_omni_moe.yaml` 17 to 21).
Replies have the lengths of ShareGPT. Typed prompts have 2,500 tokens in the median, as in vLLM-Omni's public runs;
this length was chosen with the baseline's median TTFP in view (card `liveserve-testbed` varies it). No constant was
fitted to the paper.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from harness.metrics.turns import columns_of, effective_rps
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
    "we added await_text after trying the ready set of Algorithm 1 alone, with which the P90 TTFP falls by only a "
    "tenth"
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
    "c_scope": "replica",
    "c_counts": "reply",
}

PROMPTS: dict[str, Any] = {"prompt_tokens": 2500, "prompt_sigma": 0.8, "max_prompt_tokens": 16_000}
"""Prompts of typed turns, in tokens. The median is that of vLLM-Omni's public runs; the spread is [chosen]."""

SHAREGPT: dict[str, Any] = {**SERVED, **PROMPTS, "modality": "text", "requests": 256, "rate": 20.0}
"""Single turns, typed and answered in speech, offered faster than c lets them in; workload `sharegpt`. These are N
requests for each pair of thinker and talker."""

OPEN_LOOP = {name: value for name, value in SHAREGPT.items() if name not in ("c_scope", "c_counts", "rate")}
"""The same at a `rate` to be set, without slots to wait for."""

BURSTS = {name: value for name, value in SHAREGPT.items() if name != "rate"}
"""The same users with BurstGPT arrivals, at a `rate` or `peak_rate` to be set; workload `burstgpt_fit` with
ShareGPT's prompts instead of its own."""

LONG_TOKENS = 235
"""Text of a reply that lasts for the 65.9 s of Fig. 15 right at the median pace."""

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

WAVE = (
    "the first c requests arrive together and their prompts, of up to 16,000 tokens, are computed one after the other "
    "under every policy; they are an eighth of ours at c = 8 and a quarter at c = 16"
)
"""Reason why LiveServe gains less at P90 and P95 than at the median of our runs."""

SHORTER = (
    "a talker's step takes 10 ms with one request and 15 ms with eight, so short steps for first packets make less "
    "audio in total, and every request keeps its slot longer, most of all a paced reply, where users interrupt"
)
"""Reason why LiveServe completes fewer requests in our runs."""

CURRENT_TURN: dict[str, Any] = {"prefill_ahead_s": 1.0}
"""LiveServe's prefill of the current turn while the user speaks (section 3)."""

INTERACTIVE: dict[str, Any] = {
    **SERVED,
    "deployment": PAIR_OF_QWEN,
    "modality": "audio",
    "reply": "speech",
    "sessions": 48,
    "rate": 2.0,
    "turns": 3,
    "turns_shape": 100,
    "prompt_sigma": 0.5,
    "opening_tokens": 16000,
    "kv_pool_blocks": 24_576,
    "talker_history": True,
}
"""Spoken sessions that come with 16,000 tokens of context; workload `interactive`. 48 of about 1,020 blocks share a
thinker's pool of 24,576: a pressure ratio (context of all over pool) of 2.0. Talkers keep KV over turns, too (section
5, footnote 1)."""

MIXED: dict[str, Any] = {
    **SERVED,
    "deployment": PAIR_OF_QWEN,
    "sessions": 24,
    "rate": 2.0,
    "kv_pool_blocks": 24_576,
    "talker_history": True,
    "truncate_prompts": True,
}
"""Viewers of videos, whose longest contexts are cut, and voice sessions, half of each; workload `omni_mix`."""

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


def effective_within(ttfp_s: float) -> Callable[[Measured], float | None]:
    """`effective_rps` of the turns that began within `ttfp_s` seconds, 1/s."""

    def quantity(point: Measured) -> float | None:
        return effective_rps(columns_of(typed(point.all_requests)), point.span, ttfp_s)[0]

    return quantity


LIMITS_S = np.linspace(0.25, 2.5, 46)
"""Limits of the TTFP over which effective RPS is drawn: the paper names none."""


def over_limits(
    settings: Mapping[str, Setting], paper: Mapping[str, float] | None = None, **axes: Any
) -> Plot:
    """Effective RPS over the limit of the TTFP; the paper's, which names no limit, at the right end."""
    series = {
        engine: {limit: value(effective_within(limit), at) for limit in LIMITS_S}
        for engine, at in settings.items()
    }
    marks = {engine: {LIMITS_S[-1]: rate} for engine, rate in (paper or {}).items()}
    return lines(None, series, marks=marks, xlabel="limit of the TTFP, s", **axes)


def at_thinker(point: Measured) -> pd.DataFrame:
    """By session and turn: when its request came to the thinker (arrive), and its first step and its last there (start,
    finish), s."""
    events = point.record.table("events")
    rows = events.loc[(events["stage"] == "thinker") & events["kind"].isin(["arrive", "start", "finish"])]
    return rows.set_index(["session", "turn", "kind"])["t"].unstack()


def second_turn(point: Measured, session: int) -> dict[str, Any]:
    """Return what is known in the request table of the turn with which this session comes back."""
    requests = point.requests
    rows = requests.loc[(requests["session"] == session) & (requests["turn"] == 1)]
    return rows.iloc[0].dropna().to_dict() if len(rows) else {}


def coming_back(session: int, column: str) -> Quantity:
    """A column of the request table at that turn."""
    return lambda point: second_turn(point, session).get(column)


def returning(column: str, percentile: float) -> Quantity:
    """A percentile of a column of the request table over turns that are not their session's first.

    First turns bring a session's context, which every system prefills; what KV management does shows in the others.
    """

    def quantity(point: Measured) -> float | None:
        values = point.requests.loc[point.requests["turn"] > 0, column].dropna()
        return float(np.percentile(values, percentile)) if len(values) else None

    return quantity
