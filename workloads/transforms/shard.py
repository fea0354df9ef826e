"""A finished schedule dealt out to several load generators: drawn once, so that the whole stays the process it is.

Peers draw in every worker. With the same seed in each, or one offset shared by all, the merged arrivals are no longer
the requested process: counts of a "Poisson" process were nine times over-dispersed with ten workers, while the gaps
still looked exponential. Here workers only read.
"""

from collections.abc import Sequence

import numpy as np

from workloads.columns.jobs import starts
from workloads.errors import UserError
from workloads.trace import Trace


def shard(trace: Trace, workers: int) -> list[Trace]:
    """The trace as one per worker: sessions in the order of arrival go round, each with its times and id, and with the
    agents that it calls.

    A worker without a session gets none, so the list may be shorter than `workers`.
    """
    if workers < 1:
        raise UserError(f"workers must be at least 1, got {workers}.")
    check_shards(trace, workers)
    columns, header = trace.columns(), trace.header
    worker = (np.cumsum(starts(columns)) - 1) % workers
    return [
        trace.with_columns(
            {name: values[worker == index] for name, values in columns.items()},
            [*header.notes, f"shard {index + 1} of {workers} of {header.hash}"],
        )
        for index in range(min(workers, int(worker.max()) + 1))
    ]


def check_shards(trace: Trace, workers: int) -> None:
    """UserError if a worker's sessions depend on those of others."""
    if workers > 1 and (trace.columns()["backlog"] > 0).any():
        raise UserError(
            f"a backlog ends with the users of its own load generator, and shards={workers} would have several; leave "
            "shards out, or backlog."
        )


def join(shards: Sequence[Trace]) -> Trace:
    """The trace that `shard` dealt out, in any order of shards; UserError when it is not whole."""
    if not shards:
        raise UserError("nothing to join; give the shards of a trace.")
    parts = [part.columns() for part in shards]
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    whole = shards[0].with_columns(columns, shards[0].header.notes[:-1])
    wanted = {part.header.notes[-1].rpartition(" ")[2] for part in shards if part.header.notes}
    if wanted != {whole.header.hash}:
        raise UserError("these are not all shards of one trace; give every one of them, once.")
    return whole
