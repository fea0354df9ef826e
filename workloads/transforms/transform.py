"""A trace made of others: thinned, its time scaled, a part cut out, several merged, or one looped.

Sessions are taken whole, as users are. The arrivals are changed, what the users say and how long they think is
not. Each step adds a note to the header, with the hash of the trace that it was made of.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from workloads.errors import UserError
from workloads.registry import serves
from workloads.seeds import stream
from workloads.trace import Columns, Trace, check_turns
from workloads.transforms.combine import changed, combined, labelled, stacked


def thin(trace: Trace, share: float, seed: int = 0) -> Trace:
    """Each session stays with probability `share`, so a Poisson process stays one, at a lower rate; with a job its
    agents."""
    if not 0 < share <= 1:
        raise UserError(f"share must be above 0 and at most 1, got {share}.")
    columns, starts, of_row = _by_session(trace)
    kept = stream(seed, "thin").random(len(starts)) < share
    begins = columns["waits"][columns["turn"] == 0] == ""
    kept = kept[np.maximum.accumulate(np.where(begins, np.arange(len(starts)), 0))]
    if not kept.any():
        raise UserError(f"no session of {len(starts)} is left at share={share}; choose a larger one.")
    note = f"thinned to {share:g} (seed {seed}): {kept.sum()} of {len(starts)} sessions"
    return changed(trace, {name: values[kept[of_row]] for name, values in columns.items()}, note)


def scale_time(trace: Trace, factor: float) -> Trace:
    """All scheduled times multiplied by `factor`: 0.5 doubles the rate. Speech and pauses keep their length."""
    if not 0 < factor < np.inf:
        raise UserError(f"factor must be above 0 and finite, got {factor}.")
    columns = trace.columns()
    return changed(trace, columns | {"arrival_s": columns["arrival_s"] * factor}, f"arrivals times {factor:g}")


def cut(trace: Trace, start_s: float, end_s: float) -> Trace:
    """The sessions that begin in [start_s, end_s), to their ends; times are counted from start_s."""
    columns, starts, of_row = _by_session(trace)
    kept = (starts >= start_s) & (starts < end_s)
    if not kept.any():
        raise UserError(
            f"no session begins between {start_s:g} s and {end_s:g} s; the trace's begin between "
            f"{starts.min():g} s and {starts.max():g} s."
        )
    chosen = {name: values[kept[of_row]] for name, values in columns.items()}
    chosen["arrival_s"] = chosen["arrival_s"] - start_s
    note = f"cut to [{start_s:g}, {end_s:g}) s: {kept.sum()} of {len(starts)} sessions"
    return changed(trace, chosen, note)


def merge(traces: Sequence[Trace]) -> Trace:
    """All sessions of several traces, each at its time and in its class; sessions are numbered anew.

    UserError for none, and for turns with frames, which no engine serves together.
    """
    if not traces:
        raise UserError("nothing to merge; give at least one trace.")
    if len({serves(trace) for trace in traces}) > 1:
        names = {kind: next(t.header.generator for t in traces if serves(t) == kind) for kind in ("turns", "frames")}
        raise UserError(
            f"workload {names['turns']!r} is made of turns and {names['frames']!r} of frames, which no engine serves "
            "together; merge traces of one kind."
        )
    return combined(traces)


def classify(trace: Trace, request_class: str, **label: Any) -> Trace:
    """Return the trace as `labelled` does, by its keywords. UserError for calls in frames, too, whose deadline is the
    next frame."""
    if serves(trace) == "frames":
        raise UserError(
            "calls in frames have no request classes: each frame is due at its beat; label a trace of turns."
        )
    if not request_class:
        raise UserError("the class has no name; call it for example online or batch.")
    return labelled(trace, request_class, **label)


def loop(trace: Trace, times: int, period_s: float | None = None) -> Trace:
    """Return the trace repeated this many times, one after the other, with other users of the same behaviour.

    A round begins `period_s` after the one before; default: when the last session has begun, and a mean gap later, so
    that the rate stays as it is. Rounds overlap where sessions last longer.
    """
    if times < 1:
        raise UserError(f"times must be at least 1, got {times}.")
    columns, starts, _ = _by_session(trace)
    if period_s is None:
        period_s = float(starts.max() + (starts.max() - starts.min()) / max(len(starts) - 1, 1))
    if not 0 < period_s < np.inf:
        raise UserError(f"period_s must be above 0 and finite, got {period_s}.")
    check_turns(times * len(trace), f"loop the {len(trace):,} turns fewer times than {times:,}")
    rounds = [columns | {"arrival_s": columns["arrival_s"] + i * period_s} for i in range(times)]
    return changed(trace, stacked(rounds), f"looped {times} times, every {period_s:.6g} s")


def _by_session(trace: Trace) -> tuple[Columns, np.ndarray, np.ndarray]:
    """The columns, the first arrival of each session in their order, and each row's place in that order."""
    columns = trace.columns()
    opening = columns["turn"] == 0
    return columns, columns["arrival_s"][opening], np.cumsum(opening) - 1
