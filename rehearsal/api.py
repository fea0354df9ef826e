"""Rehearsal from Python: run an experiment, read the results as pandas frames, make traces.

    import rehearsal

    results = rehearsal.run("bench", {"c": [4, 16], "p": 0.7}, quick=True)
    results.summary                    # a row per engine and setting: medians over the seeds
    results.points                     # a row per point: its settings, seed, status and metrics
    results.table("requests")          # a row per turn of every point, and the point's settings
    results.counters                   # a row per point: what engines and policies counted

    cards = rehearsal.run("nova-fig11", quick=True)
    cards.claims                       # a row per claim: the paper's number, ours, the outcome

    rehearsal.load("results/bench")    # what `rehearse run` left, of figure cards too
    rehearsal.trace("voice", {"p": 0.3}, seed=1)

Every function raises `rehearsal.UserError`, with a sentence that says what to fix, where the command line would exit
with status 2. Metrics are in their own units, as on the page of metrics; a missing measurement is NaN.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from harness.by_device import expand
from harness.experiments.experiment import Experiment
from harness.records.results import COLLECTION, read_results, summary_row
from harness.replays.executors.place import Place
from reports.cards.group import Group, load_group
from reports.cards.source import Source, default_out, figures, resolve
from reports.claims.grading import as_rows
from reports.runs.answer import answer
from reports.runs.measured import Measured, Run, load_run
from reports.runs.table import flat, results_data
from workloads.errors import UserError, nearest

__all__ = ["CardResults", "Results", "UserError", "load", "run", "trace"]


class Results:
    """A results directory, as frames that are read on request."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self.folder: Path = run.folder
        self.experiment: Experiment = run.experiment

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        """DIR/summary.json: a row per point."""
        return [summary_row(record) for record in read_results(self.folder)[1]]

    @cached_property
    def summary(self) -> pd.DataFrame:
        """A row per engine and cell of the grid: settings, `runs`, `runs_failed`, and of each metric the median over
        the seeds under its name, with `.low`, `.high`, `.n` (events of the run with the fewest), `.runs` and `.few`."""
        return pd.DataFrame(flat(results_data(self._run)))

    @cached_property
    def points(self) -> pd.DataFrame:
        """A row per point, with its id as the index: engine, parameters, seed, status, error, and every metric."""
        values = [
            {
                "engine": point.point.engine,
                **point.params,
                "seed": point.seed,
                "status": "ok" if point.error is None else "failed",
                "error": point.error,
                **point.values,
            }
            for point in self._run.points
        ]
        return pd.DataFrame(values, index=pd.Index([each.point.id for each in self._run.points], name="point"))

    @cached_property
    def counters(self) -> pd.DataFrame:
        """The counters of engines and policies: a column per counter, a row per finished point. Index: engine, axes of
        the grid, seed. NaN: the engine of this point does not count it."""
        found = {self._place(point): point.record.counters for point in self._run.points if point.error is None}
        levels = ["engine", *self.experiment.grid, "seed"]
        index = pd.MultiIndex.from_tuples([*found], names=levels)
        return pd.DataFrame([*found.values()], index=index)

    def _place(self, point: Measured) -> tuple[Any, ...]:
        """Return engine, axes of the grid and seed."""
        axes = (point.params.get(axis) for axis in self.experiment.grid)
        return (point.point.engine, *axes, point.seed)

    def table(self, name: str) -> pd.DataFrame:
        """Return `requests`, `events`, `steps` or another table of all finished points, in one frame.

        Index: engine, axes of the grid, seed, and the row in its own table. UserError where no point has such a table.
        """
        known: set[str] = set()
        frames: dict[Hashable, pd.DataFrame] = {}
        for point in self._run.points:
            if point.error is None:
                own = {path.stem for path in point.record.folder.glob("*.parquet")}
                known |= own
                if name in own:
                    frames[self._place(point)] = point.record.table(name)
        if not frames:
            raise UserError(f"{self.folder} has no table {name!r}.{nearest(name, known)}")
        levels: list[Hashable] = ["engine", *self.experiment.grid, "seed", "row"]
        return pd.concat(frames, names=levels)

    @property
    def answer(self) -> str | None:
        """The sentence that heads the report; None where no point finished."""
        return answer(self._run.finished, [*self.experiment.grid])

    def report(self) -> Path:
        """Write DIR/report.html with its pictures; return its path."""
        from reports.pages.html import write_report

        return write_report(self.folder)


class CardResults:
    """A results directory of figure cards. `panels`: (card, panel) -> the results of its experiment."""

    def __init__(self, group: Group) -> None:
        self._group = group
        self.folder: Path = group.folder
        self.panels: dict[tuple[str, str], Results] = {
            (card.figure.name, panel): Results(run) for card in group.cards for panel, run in card.panels.items()
        }

    @cached_property
    def claims(self) -> pd.DataFrame:
        """A row per claim, with its id as the index: the paper's number, ours, outcome and cause, as `rehearse claims
        --json` has them."""
        return pd.DataFrame(as_rows(self._group.claims)).set_index("id")

    @cached_property
    def summary(self) -> pd.DataFrame:
        """`Results.summary` of all panels. Index: card, panel, row."""
        return self._joined("row", {name: panel.summary for name, panel in self.panels.items()})

    @cached_property
    def points(self) -> pd.DataFrame:
        """`Results.points` of all panels. Index: card, panel, id of the point, which panels may share."""
        return self._joined("point", {name: panel.points for name, panel in self.panels.items()})

    def _joined(self, row: str, frames: Mapping[Hashable, pd.DataFrame]) -> pd.DataFrame:
        levels: list[Hashable] = ["card", "panel", row]
        return pd.concat(frames, names=levels)

    def report(self) -> Path:
        """Write DIR/report.html with its pictures; return its path."""
        from reports.pages.group_page import write_group_report

        return write_group_report(self._group)


def run(
    source: Source,
    settings: Mapping[str, Any] | None = None,
    *,
    seeds: int | None = None,
    device: str | None = None,
    profile: Path | str | None = None,
    jobs: int | None = None,
    out: Path | str | None = None,
    quick: bool = False,
    executor: str = "local",
) -> Results | CardResults:
    """Measure every point of an experiment, each in a fresh worker, as `rehearse run` does; finished points are kept.

    `source`: the name of a card or of a group of figure cards, a YAML file, a results directory, or the experiment
    itself as a mapping. `settings`: values by name; a list makes an axis. `out`: the results directory, by default as
    on the command line. `executor`: as there. A failed point is a row with status `failed`, and the others go on.
    """
    from reports.cli.measuring import measured
    from reports.cli.workers import side_of

    if not isinstance(source, Mapping) and (cards := figures(str(source))):
        from reports.cli import card_points

        if profile is not None:
            raise UserError("profile is for one experiment, not for figure cards; leave it out.")
        asked = card_points.asked(cards, settings or {}, seeds, device, quick)
        collection, points = card_points.expanded(cards[0].group, asked)
        folder = Path(out) if out is not None else card_points.default_out(collection.name, quick)
        seed = cards[0].order_seed
        measured(collection, points, folder, side_of(points, jobs, Place(executor)), order_seed=seed)
        return CardResults(load_group(folder))
    experiment = resolve(source, settings or {}, seeds, device, quick, profile)
    points = expand(experiment)
    folder = Path(out) if out is not None else default_out(source, experiment.name, experiment.device)
    measured(experiment, points, folder, side_of(points, jobs, Place(executor)))
    return Results(load_run(folder, experiment))


def load(folder: Path | str) -> Results | CardResults:
    """Return the results of a directory. UserError if it is none, or a damaged one."""
    if (Path(folder) / COLLECTION).is_file():
        return CardResults(load_group(Path(folder)))
    return Results(load_run(Path(folder)))


def trace(
    workload: str, settings: Mapping[str, Any] | None = None, seed: int = 0, out: Path | str | None = None
) -> pd.DataFrame:
    """Return a workload's turns, a row each, in the order in which sessions arrive; they are written to the file `out`
    as well.

    Times in s, lengths in tokens, as on the page of workloads. `attrs` holds the generator, its parameters, the seed
    and the hash of the turns.
    """
    from workloads.registry import make_trace

    made = make_trace(workload, settings or {}, seed)
    if out is not None:
        from workloads.formats import save_trace

        save_trace(made, Path(out))
    columns = made.columns()
    frame = pd.DataFrame({field.name: columns[field.name] for field in made.written()})
    frame.attrs.update(asdict(made.header))
    return frame
