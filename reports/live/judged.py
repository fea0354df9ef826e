"""What a measured point says of the targets of a search."""

from collections.abc import Sequence
from pathlib import Path

from harness.records.results import find_record
from harness.slo.targets import Repeat, Target, judged_value
from reports.tables.columns import INVALID
from workloads.errors import UserError


def repeat(folder: Path, id: str, targets: Sequence[Target]) -> Repeat:
    """The point of a results directory as a repeat; it must have finished or failed."""
    record = find_record(folder / "points", id)
    assert record is not None, "it was just measured"
    error = record.manifest.get("error", "")
    if record.metrics and not error.startswith(INVALID):
        error = ""  # the server failed, which its values say: turns that fail are infinitely late
    requests = record.table("requests") if record.metrics else None
    values = tuple(
        None if requests is None else judged_value(target.metric, record.metrics, requests)
        for target in targets
    )
    return Repeat(id, values, error)


def check_known(option: str, targets: Sequence[Target], repeats: Sequence[Repeat]) -> None:
    """UserError for a metric that no point has, as of another kind of workload: no value could ever meet it."""
    finished = [repeat for repeat in repeats if not repeat.error]
    for index, target in enumerate(targets):
        if finished and all(repeat.values[index] is None for repeat in finished):
            raise UserError(
                f"{option} {target.metric}: none of the {len(finished)} points measured has it; name a metric of this "
                "workload. What was measured is kept."
            )
