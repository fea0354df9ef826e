"""Traces put together and labelled by workloads that are made of others, which know what they combine.

`workloads.transforms.transform` does the same to traces of any origin and looks first whether it can be done.
"""

from collections.abc import Sequence

import numpy as np
from pydantic import BaseModel

from workloads.trace import Columns, Trace


def combined(traces: Sequence[Trace]) -> Trace:
    """All sessions of one trace or more, each at its time and in its class; sessions are numbered anew."""
    headers = [trace.header for trace in traces]
    parts = [
        {"generator": header.generator, "params": header.params, "seed": header.seed, "hash": header.hash}
        for header in headers
    ]
    return Trace.from_columns(
        stacked([trace.columns() for trace in traces]),
        generator="+".join(dict.fromkeys(header.generator for header in headers)),
        params={"merged": parts},
        notes=[f"{header.generator}: {note}" for header in headers for note in header.notes],
    )


def mixture(
    generator: str, params: BaseModel, seed: int, parts: Sequence[Trace], columns: Columns, notes: Sequence[str]
) -> Trace:
    """Return the trace of a workload that is made of the traces `parts`: `columns` of all of them."""
    return Trace.from_columns(
        columns,
        generator=generator,
        params=params.model_dump(mode="json"),
        seed=seed,
        streams=[f"{part.header.generator}/{name}" for part in parts for name in part.header.streams],
        notes=notes,
    )


def labelled(
    trace: Trace,
    request_class: str,
    *,
    priority: int | None = None,
    ttft_deadline_s: float | None = None,
    tbt_deadline_s: float | None = None,
) -> Trace:
    """Every turn in one class, with its priority and deadlines as in `Turn`, in place of any it had.

    UserError for a value that `Turn` cannot hold.
    """
    label = {"request_class": request_class, "priority": priority}
    label |= {"ttft_deadline_s": ttft_deadline_s, "tbt_deadline_s": tbt_deadline_s}
    values = [f"{name} {value:g}" for name, value in label.items() if isinstance(value, (int, float))]
    note = ", ".join([f"class {request_class}", *values])
    columns = {name: np.full(len(trace), np.nan if v is None else v) for name, v in label.items()}
    return changed(trace, trace.columns() | columns, note)


def stacked(parts: Sequence[Columns]) -> Columns:
    """Columns one below the other, with sessions numbered anew in this order. A column of a workload's own is empty in
    the parts without it."""
    names = dict.fromkeys(name for part in parts for name in part)
    columns = {name: np.concatenate([_column(name, part, parts) for part in parts]) for name in names}
    columns["session"] = np.cumsum(columns["turn"] == 0) - 1
    return columns


def _column(name: str, part: Columns, parts: Sequence[Columns]) -> np.ndarray:
    if name in part:
        return part[name]
    text = any(each[name].dtype.kind == "U" for each in parts if name in each)
    return np.full(len(part["session"]), "" if text else np.nan)


def changed(trace: Trace, columns: Columns, note: str) -> Trace:
    """Return the trace with other columns, and a note in its header with the hash of the original."""
    header = trace.header
    return trace.with_columns(columns, [*header.notes, f"{note}, of {header.hash[:16]}"])
