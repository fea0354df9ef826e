"""Rehearsal from Python: run an experiment, read the results as pandas frames, make traces.

    import rehearsal

    results = rehearsal.run("bench", {"c": [4, 16], "p": 0.7}, quick=True)
    results.summary                    # a row per engine and setting: medians over the seeds
    results.points                     # a row per point: its settings, seed, status and metrics
    results.table("requests")          # a row per turn of every point, and the point's settings
    results.counters                   # a row per point: what engines and policies counted

    rehearsal.load("results/bench")    # what `rehearse run` left
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
from harness.records.results import read_results, summary_row
from harness.replays.executors.place import Place
from reports.cards.source import Source, default_out, resolve
from reports.runs.answer import answer
from reports.runs.measured import Measured, Run, load_run
from reports.runs.table import flat, results_data
from workloads.errors import UserError, nearest

__all__ = ["Results", "UserError", "load", "run", "trace"]


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
        return pd.DataFrame(
            values, index=pd.Index([each.point.id for each in self._run.points], name="point")
        )

    @cached_property
    def counters(self) -> pd.DataFrame:
        """The counters of engines and policies: a column per counter, a row per finished point. Index: engine, axes of
        the grid, seed. NaN: the engine of this point does not count it."""
        found = {
            self._place(point): point.record.counters for point in self._run.points if point.error is None
        }
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
) -> Results:
    """Measure every point of an experiment, each in a fresh worker, as `rehearse run` does; finished points are kept.

    `source`: a card's name, a YAML file, a results directory, or the experiment itself as a mapping. `settings`: values
    by name; a list makes an axis. `out`: the results directory, by default as on the command line. `executor`: as
    there. A failed point is a row with status `failed`, and the others go on.
    """
    from reports.cli.measuring import measured
    from reports.cli.workers import side_of

    experiment = resolve(source, settings or {}, seeds, device, quick, profile)
    points = expand(experiment)
    folder = Path(out) if out is not None else default_out(source, experiment.name, experiment.device)
    measured(experiment, points, folder, side_of(points, jobs, Place(executor)))
    return Results(load_run(folder, experiment))


def load(folder: Path | str) -> Results:
    """Return the results of a directory. UserError if it is none, or a damaged one."""
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
