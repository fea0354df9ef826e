"""The output of a command about the results of a run: table, answer, report."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from reports.cli.output import Form, emit, tell, wide

if TYPE_CHECKING:
    from harness.experiments.experiment import Experiment
    from harness.live.live_slo import Asked
    from harness.slo.targets import Verdict
    from reports.live.live_verdict import LiveVerdict
    from reports.runs.measured import Run

_WIDE = 150
"""Characters from which on a table has ranges."""


def present_live(
    experiment: Experiment, folder: Path, form: Form, asked: Asked, metrics: Sequence[str] = ()
) -> Verdict | None:
    """Print as `present` does, store the targets in the folder, and begin JSON with the verdict. Returns the verdict;
    None without targets.
    """
    from reports.live.live_verdict import live_verdict
    from reports.runs.measured import load_run

    asked.write(folder)
    run = load_run(folder, experiment)
    verdict = live_verdict(run)
    if verdict is not None:
        verdict.write(folder)
    present(run, form, metrics, verdict)
    return None if verdict is None else verdict.verdict


def present(
    run: Run, form: Form = "table", metrics: Sequence[str] = (), verdict: LiveVerdict | None = None
) -> None:
    """Print table, answer and paths, and write the report; of another form the rows alone, paths on stderr. Of a live
    run the verdict comes first; in JSON where it is given. `metrics`: columns instead of the main ones."""
    from reports.pages.html import write_report
    from reports.runs.answer import answer
    from reports.runs.policies import identical_sentences, order_sentences
    from reports.runs.table import flat, results_data, results_table

    console = wide(_WIDE, stderr=form != "table")
    live, counted, axes = run.experiment.device == "live", run.finished, [*run.experiment.grid]
    if form != "table":
        data = results_data(run, metrics)
        emit(form, flat(data), data if verdict is None else {**verdict.as_dict(), "results": data})
    else:
        if live:
            from reports.live.live_verdict import live_verdict, show_verdict

            if (judged := verdict or live_verdict(run)) is not None:
                show_verdict(console, judged)
        console.print(results_table(run, console.width >= _WIDE, metrics))
        if live:
            from reports.live.server_side import sides_table

            if (table := sides_table(run)) is not None:
                console.print(table)
        sentence = None if live else answer(counted, axes)  # of a live run the verdict is the sentence
        if sentence is not None:
            console.print(f"{sentence}\n", highlight=False, soft_wrap=True, style="bold")
        if counted and not live:
            beyond = filter(None, [run.beyond_sessions])
            tell(console, [*beyond, *order_sentences(run, never=True), *identical_sentences(run)])
    paths = [run.folder / "summary.json"]
    if counted or live:
        paths.append(write_report(run.folder, metrics))
    tell(console, paths)
