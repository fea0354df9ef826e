"""The cost of a load: GPU-seconds for a turn, a minute of conversation, a million tokens; goodput.

Everything is over the steady window of a point (`harness.request_tables.steady_window`). Ramp and drain would make a
short run dear, as their share depends on the length of the run.

A minute of conversation is a minute that one session is connected, no matter who speaks. A deployment's GPUs are its
own all the time, busy or not, so its GPU-seconds are GPUs x seconds. Tokens are the text tokens that reached clients.
Turns count if they ended or were interrupted, and their user's part ended in the window. Goodput is the rate of such
turns, 1/s, that met every target of single turns: a latency, and for `continuity` playing without a pause above 100
ms.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from harness.metrics.metric_name import parsed
from harness.metrics.stats import across_seeds
from harness.metrics.turns import DISTRIBUTIONS
from harness.records.record import Record
from harness.request_tables.playback import is_continuous
from harness.request_tables.request_table import BARGED_IN, COMPLETED
from harness.request_tables.steady_window import STEADY, Window, on_line_mean, phases
from harness.slo.targets import Target

if TYPE_CHECKING:
    from engines.deployments import Deployment

MINUTE_S, MILLION = 60.0, 1e6
TOKENS = ("first_text", "text", "frame")
"""Events whose value is the number of text tokens that reached a client."""


@dataclass(frozen=True)
class Usage:
    """The usage of one point, or medians over seeds. GPU-seconds for a turn, a minute of conversation and a million
    tokens; None where the run had no steady window, or no such thing in it.
    """

    goodput_rps: float | None = None
    gpu_s_per_turn: float | None = None
    gpu_s_per_minute: float | None = None
    gpu_s_per_million_tokens: float | None = None


def hardware(record: Record) -> tuple[str, int]:
    """Return the GPU of the point's deployment and the number of GPUs."""
    deployment = _deployment(record)
    return deployment.gpu.name, _gpus(deployment)


def usage(records: Sequence[Record], targets: Sequence[Target]) -> Usage:
    """Return medians over the points of one setting."""
    each = [_usage(record, targets) for record in records]
    names = [field.name for field in fields(Usage)]
    return Usage(*(across_seeds(dict(enumerate(getattr(one, n) for one in each))).median for n in names))


def _usage(record: Record, targets: Sequence[Target]) -> Usage:
    kinds = ["session_start", "session_end", "turn_start", "run_end", *TOKENS]
    events = record.table("events", columns=["t", "kind", "value"], filters=[("kind", "in", kinds)])
    window = _window(record, float(events["t"].to_numpy().max(initial=0.0)))
    on_line = on_line_mean(events, window)
    if on_line is None:
        return Usage()
    span_s = window.length_s
    inside = events["kind"].isin(TOKENS) & events["t"].between(window.begin_s, window.end_s)
    turns = _turns(record.table("requests"), window)
    served = {
        "turn": 0 if turns is None else len(turns),
        "minute": on_line * span_s / MINUTE_S,
        "million_tokens": float(events.loc[inside, "value"].sum()) / MILLION,
    }
    gpu_s = _gpus(_deployment(record)) * span_s
    return Usage(
        goodput_rps=None if turns is None else _good(turns, targets) / span_s,
        **{f"gpu_s_per_{unit}": gpu_s / units if units else None for unit, units in served.items()},
    )


def _deployment(record: Record) -> Deployment:
    from reports.replays.placement import deployment_of  # not of live runs, which know no deployment

    deployment = deployment_of(record.point)
    assert deployment is not None, "only servers of ours are costed"
    return deployment


def _gpus(deployment: Deployment) -> int:
    return len({gpu for group in deployment.gpu_groups for gpu in group})


def _window(record: Record, end_s: float) -> Window:
    """Return the steady window; of frames, and of a run that is measured whole, all of it up to `end_s`."""
    begin_s, end = (record.metrics.get(name, {}).get("value") for name in ("steady_begin", "steady_end"))
    return Window(0.0, end_s) if begin_s is None or end is None else Window(begin_s, end)


def _turns(requests: pd.DataFrame, window: Window) -> pd.DataFrame | None:
    """Return the turns of the window that ended or were cut short by their user; None for frames."""
    if "turn_end_s" not in requests:
        return None
    ended = requests["status"].isin([COMPLETED, BARGED_IN])
    return requests.loc[ended & (phases(requests, window) == STEADY)]


def _good(turns: pd.DataFrame, targets: Sequence[Target]) -> int:
    """Return the number of turns that met the targets."""
    met = np.ones(len(turns), bool)
    for target in targets:
        met &= _each_met(turns, target)
    return int(met.sum())


def _each_met(turns: pd.DataFrame, target: Target) -> np.ndarray:
    """Return the turns that meet a target by themselves; all turns if the target is not one of single turns."""
    free = np.zeros(len(turns), bool)
    if target.metric == "continuity":
        unbroken = [is_continuous(gap_s) for gap_s in turns["max_gap_s"]]
        return ~turns["spoken"].to_numpy(bool) | np.array(unbroken, bool)
    distribution = DISTRIBUTIONS.get(parsed(target.metric).family)
    if distribution is None:
        return ~free
    if distribution.spoken_only:
        free |= ~turns["spoken"].to_numpy(bool)
    if distribution.whole_only:
        free |= (turns["status"] == BARGED_IN).to_numpy()
    return free | np.array([target.met(value) for value in turns[distribution.column]], bool)
