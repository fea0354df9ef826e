"""The points that a search measured, as repeats."""

from collections.abc import Sequence
from pathlib import Path

from harness.records.record import Record
from harness.records.results import find_record
from harness.slo.targets import Repeat, Target, judged_value
from workloads.errors import UserError


def record_of(folder: Path, id: str) -> Record:
    """The record of a point that a search measured."""
    record = find_record(folder / "points", id)
    assert record is not None, "the search measured it"
    return record


def repeat(record: Record, targets: Sequence[Target]) -> Repeat:
    """A point that finished or failed as a repeat."""
    error = record.error or ""
    if record.metrics and not record.invalid:
        error = ""  # the server failed, which its values say: turns that fail are infinitely late
    metrics = record.metrics_with(target.metric for target in targets)
    requests = record.table("requests") if metrics else None
    values = tuple(None if requests is None else judged_value(target.metric, metrics, requests) for target in targets)
    return Repeat(record.point.id, values, error)


def check_known(option: str, targets: Sequence[Target], repeats: Sequence[Repeat]) -> None:
    """UserError for a metric that no point has, as of another kind of workload: no value could ever meet it."""
    finished = [repeat for repeat in repeats if not repeat.error]
    for index, target in enumerate(targets):
        if finished and all(repeat.values[index] is None for repeat in finished):
            raise UserError(
                f"{option} {target.metric}: none of the {len(finished)} points measured has it; name a metric of this "
                "workload. What was measured is kept."
            )
