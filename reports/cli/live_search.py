"""`rehearse live --find`: search for how many calls an endpoint holds, and say it in a sentence and a table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from harness.experiments.experiment import Experiment, Traces, expand
from harness.live.capacity import CAPACITY, Step, as_dict, judge, search
from harness.records.record import write_json
from harness.records.results import write_summary
from reports.cli.measuring import measure_points
from reports.cli.output import Form
from reports.cli.report import present_live
from reports.live.judged import check_known, repeat

if TYPE_CHECKING:
    from harness.slo.judgement import Verdict
    from reports.live.live_verdict import Asked


def find_capacity(
    experiment: Experiment,
    asked: Asked,
    up_to: int,
    first: int,
    folder: Path,
    form: Form,
    metrics: Sequence[str] = (),
) -> Verdict:
    """Search, then say what it found, with the table of all that was tried, and what that is worth."""
    traces: Traces = {}
    targets = asked.targets
    (axis,) = (name for name in experiment.grid if name in ("c", "sessions"))
    tried: dict[int, list[str]] = {}

    def at(numbers: list[int]) -> Experiment:
        return experiment.model_copy(update={"grid": {**experiment.grid, axis: numbers}})

    def measure(n: int) -> Step:
        points = expand(at([n]), traces)
        before = [id for number, ids in tried.items() for id in ids if number != n]
        tried[n] = [point.id for point in points]
        measure_points(
            at(sorted(tried)), points, folder, 1, experiment.timeout_s, lambda rows: None, before=before
        )
        repeats = [repeat(folder, id, targets) for id in tried[n]]
        check_known("--find", targets, repeats)
        return judge(n, repeats, targets)

    capacity = search(measure, targets, up_to, first)
    write_json(folder / CAPACITY, as_dict(capacity))
    rows = write_summary(folder, [id for n in sorted(tried) for id in tried[n]])
    present_live(at(sorted(tried)), rows, folder, form, asked, metrics)
    return capacity.verdict
