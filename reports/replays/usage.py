"""The cost of a load: GPU-seconds for a turn, a minute of conversation, a million tokens; goodput.

Everything is over the steady window of a point (`harness.request_tables.steady_window`). Ramp and drain would make a
short run dear, as their share depends on the length of the run.

A minute of conversation is a minute that one session is connected, no matter who speaks. A deployment's GPUs are its
own all the time, busy or not, so its GPU-seconds are GPUs x seconds. Tokens are the text tokens that reached clients.
Turns count as for goodput (`harness.slo.goodput`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from harness.metrics.stats import across_seeds
from harness.records.record import Record
from harness.request_tables.steady_window import on_line_mean
from harness.slo.goodput import ended_turns, good, window_of
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
    window = window_of(record, float(events["t"].to_numpy().max(initial=0.0)))
    on_line = on_line_mean(events, window)
    if on_line is None:
        return Usage()
    span_s = window.length_s
    inside = events["kind"].isin(TOKENS) & events["t"].between(window.begin_s, window.end_s)
    turns = ended_turns(record.table("requests"), window)
    served = {
        "turn": 0 if turns is None else len(turns),
        "minute": on_line * span_s / MINUTE_S,
        "million_tokens": float(events.loc[inside, "value"].sum()) / MILLION,
    }
    gpu_s = _gpus(_deployment(record)) * span_s
    return Usage(
        goodput_rps=None if turns is None else good(turns, targets) / span_s,
        **{f"gpu_s_per_{unit}": gpu_s / units if units else None for unit, units in served.items()},
    )


def _deployment(record: Record) -> Deployment:
    from reports.replays.placement import deployment_of  # not of live runs, which know no deployment

    deployment = deployment_of(record.point)
    assert deployment is not None, "only servers of ours are costed"
    return deployment


def _gpus(deployment: Deployment) -> int:
    return len({gpu for group in deployment.gpu_groups for gpu in group})
