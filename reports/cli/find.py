"""`rehearse find`: search for the largest value of a parameter that meets targets, instead of sweeping it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import islice, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from harness.clocks.ctrl_c import stopped
from harness.exit_status import FAIL, OK
from harness.replays.executors.place import Place
from reports.cards.source import default_out, resolve
from reports.cli.completion import source_of
from reports.cli.measuring import measure_points, show_points
from reports.cli.output import AS_CSV, AS_JSON, Form, emit, form_of
from reports.cli.settings import DRY_RUN, EXECUTOR, QUICK, SETTINGS, number, option
from workloads.errors import UserError

if TYPE_CHECKING:
    from harness.experiments.experiment import Experiment
    from harness.experiments.grid import Traces
    from harness.replays.point import ReplayPoint
    from harness.slo.search import Bounds, Searches, Tried
    from harness.slo.targets import Target

SEEDS = 3
"""Number of seeds by default, without --quick. [chosen]"""
LOWEST, HIGHEST = {True: 1, False: 0.01}, 256
"""[chosen] Default bounds: the lowest value for whole numbers (True) and for others (False), and the highest for both.
"""
FIRST = {True: 8, False: 1.0}
"""First value of a search: whole numbers (True) and others (False). [chosen]"""
CLOSE = 50
"""The search ends when the gap above N is at most N / 50: exact for whole numbers below 100, beyond that 2 %.
[chosen]"""

Key = tuple[str, tuple[tuple[str, Any], ...]]
"""One search: its engine, and what the axes of the experiment are set to."""


def find(
    source: Annotated[str, source_of("A card, a YAML file, or a results directory.")],
    slo: str = option(..., 'Targets to meet: "ttfp_p90<=500ms continuity>=95%".', "TARGETS"),
    over: str = option("c", "The parameter whose largest value is searched.", "NAME"),
    lowest: float | None = option(None, "The smallest value to try; default: 1.", "N", name="--from"),
    highest: float | None = option(
        None, "The largest value to try; default: 256, of c half the sessions.", "N", name="--to"
    ),
    settings: list[str] = SETTINGS,
    seeds: int | None = number(None, "Use the seeds 0 to N-1; default: 3, with --quick 1."),
    profile: Path | None = option(None, "Step times of `rehearse profile`.", "FILE"),
    jobs: int | None = number(None, "Points at a time; default: the processor's cores."),
    out: Path | None = option(None, "Results directory; default: results/NAME-find.", "DIR"),
    executor: str = EXECUTOR,
    quick: bool = QUICK,
    dry_run: bool = DRY_RUN,
    as_json: bool = AS_JSON,
    as_csv: bool = AS_CSV,
) -> None:
    """Find the largest c, or other parameter, at which every seed meets every target, and the cost of that load.

    There is one search for each engine and each setting of the other axes, all in virtual time. The same command again
    resumes.

    `rehearse find bench --slo "ttfp_p90<=500ms continuity>=90%" --set p=0.3`

    `rehearse find bench --slo "continuity>=95%" --set gpu=h100,h200`

    `rehearse find my.yaml --slo "ttft_p99<=1s" --over rate --from 0.5 --to 20`
    """
    from harness.experiments.settings import read_settings
    from harness.slo.targets import parse_targets

    form = form_of(as_json, as_csv)
    targets = parse_targets(slo, "--slo")
    place = Place(executor)
    given = read_settings(settings)
    if over in given:
        raise UserError(
            f"--set {over}={given[over]} pins what --over {over} searches; leave one out, or bound the search by "
            "--from and --to."
        )
    experiment = resolve(source, given, seeds or (None if quick else SEEDS), None, quick, profile)
    if experiment.device != "virtual":
        raise UserError(
            f"a search is made in virtual time, and the experiment is for device {experiment.device}; set device to "
            "virtual, or search at an endpoint with rehearse live URL --find."
        )
    space = _space(experiment, over, lowest, highest)
    if dry_run:
        show_points([each.point for each in space.wanted(targets)], form)
        return
    folder = out or default_out(source, experiment.name, experiment.device).with_name(f"{experiment.name}-find")
    failed = _searched(space, targets, folder, jobs, place)
    with stopped("Stopped; run the same command again to resume."):
        held = _present(space.searches(targets), space, folder, form)
    raise typer.Exit(OK if held and not failed else FAIL)


class _Wanted(NamedTuple):
    key: Key
    value: float
    point: ReplayPoint


@dataclass
class _Space:
    """The searches of an experiment: its points at each value of the searched parameter, and the values tried so
    far."""

    experiment: Experiment
    over: str
    bounds: Bounds
    traces: Traces = field(default_factory=dict)
    tried: dict[Key, list[Tried]] = field(default_factory=dict)
    _points: dict[float, list[ReplayPoint]] = field(default_factory=dict)

    def sweep(self, values: Iterable[float]) -> Experiment:
        """The experiment with these values as its last axis."""
        return self.experiment.model_copy(update={"grid": {**self.experiment.grid, self.over: sorted(values)}})

    def at(self, value: float) -> list[ReplayPoint]:
        """The points of every search at one value."""
        from harness.replays.expand import expand

        if value not in self._points:
            self._points[value] = expand(self.sweep([value]), self.traces)
        return self._points[value]

    def key(self, point: ReplayPoint) -> Key:
        axes = [name for name in self.experiment.grid if name in point.params]
        return point.engine, tuple((name, point.params[name]) for name in axes)

    def point(self, key: Key, value: float, seed: int) -> ReplayPoint:
        return next(point for point in self.at(value) if self.key(point) == key and point.seed == seed)

    def searches(self, targets: tuple[Target, ...]) -> Searches:
        from harness.slo.search import Question, Search, Searches

        question = Question(self.over, targets, self.bounds, tuple(self.experiment.seeds))
        searched = (
            Search(question, tried, engine=engine, settings=dict(axes)) for (engine, axes), tried in self.tried.items()
        )
        return Searches(question, tuple(searched))

    def wanted(self, targets: tuple[Target, ...]) -> list[_Wanted]:
        """Return the values that all searches need next, to be measured together."""
        return [
            _Wanted(key, value, self.point(key, value, seed))
            for key, one in zip(self.tried, self.searches(targets).searched, strict=True)
            for value, seed in one.wanted
        ]

    def ahead(self, targets: tuple[Target, ...], measured: Collection[str]) -> Iterator[ReplayPoint]:
        """Yield the points that the searches may need afterwards, one of each search in turn, without the `measured`
        ones."""
        for nearest in zip_longest(*(one.ahead for one in self.searches(targets).searched)):
            for key, found in zip(self.tried, nearest, strict=True):
                if found is not None:
                    value, seed = found
                    if (point := self.point(key, value, seed)).id not in measured:
                        yield point


def _space(experiment: Experiment, over: str, lowest: float | None, highest: float | None) -> _Space:
    """Return the space; UserError for a parameter that is not a number or that an engine lacks, and for impossible
    bounds."""
    from harness.experiments.grid import is_whole, largest
    from harness.replays.expand import SYSTEMS
    from harness.slo.search import Bounds

    whole = is_whole(experiment, SYSTEMS, over)
    first, last = (_bound(option, value, whole) for option, value in (("--from", lowest), ("--to", highest)))
    along = {name: values[-1] for name, values in experiment.along.items()}
    fixed = {
        "set": {name: value for name, value in {**experiment.set, **along}.items() if name != over},
        "along": {},
        "grid": {name: values for name, values in experiment.grid.items() if name != over},
    }
    most = min(HIGHEST, largest(experiment, SYSTEMS, over))
    bounds = Bounds(first or LOWEST[whole], last or most, FIRST[whole], whole, CLOSE)
    space = _Space(experiment.model_copy(update=fixed), over, bounds)
    points = space.at(bounds.lowest)
    without = next((point.engine for point in points if over not in point.params), None)
    if without is not None:
        raise UserError(f"--over {over}: engine {without} has no such parameter; set engine to engines with it.")
    if over == "c":
        # A trace cannot have more concurrent sessions than sessions, and rarely has more than half of them.
        sessions = min(len(trace.sessions) for trace in space.traces.values())
        if last is not None and last > sessions:
            raise UserError(
                f"--to {last:g}: the workload has {sessions} sessions, and no more can be concurrent; give --to "
                f"{sessions}, or more sessions where the workload has that parameter."
            )
        space.bounds = bounds = replace(bounds, highest=last or min(HIGHEST, max(sessions // 2, bounds.lowest)))
    if bounds.lowest > bounds.highest:
        raise UserError(f"--from {bounds.lowest:g} is above --to {bounds.highest:g}; give a smaller one.")
    space.at(bounds.highest)  # what could not run there is said before anything is measured
    space.tried = {space.key(point): [] for point in points}
    return space


def _bound(option: str, value: float | None, whole: bool) -> float | None:
    if value is None:
        return None
    if not 0 < value < float("inf") or (whole and value != int(value)):
        raise UserError(f"{option} {value:g}: give a {'whole number from 1 on' if whole else 'number above 0'}.")
    return int(value) if whole else value


def _searched(space: _Space, targets: tuple[Target, ...], folder: Path, jobs: int | None, place: Place) -> bool:
    """Measure round by round the points that the searches need, until they all end; whether any of them failed.

    Idle workers measure points that may be needed afterwards. A search takes such a point when it needs it, so the
    answer and its points are those of a search that waits for each round. The slowest points, which have the largest
    values, start first.
    """
    from harness.records.results import claim
    from harness.slo.search import Tried
    from reports.cli.workers import Workers, points_at_a_time
    from reports.runs.repeats import check_known, record_of, repeat

    at_a_time = points_at_a_time({space.experiment.device}, jobs, place) or 1
    failed, measured, ahead = False, dict[str, _Wanted](), set[str]()
    while wanted := space.wanted(targets):
        points = [each.point for each in sorted(wanted, key=lambda each: -each.value) if each.point.id not in ahead]
        if points:
            idle = islice(space.ahead(targets, ahead), max(0, at_a_time - len(points)))
            points += (guesses := list(idle))
            ahead |= {point.id for point in guesses}
            owner = space.sweep({each.value for each in [*measured.values(), *wanted]})
            measure_points(owner, points, folder, Workers(jobs, place), before=list(measured))
        measured |= {each.point.id: each for each in wanted}
        for key, value, point in wanted:
            record = record_of(folder, point.id)
            failed |= record.error is not None
            space.tried[key].append(Tried(value, point.seed, repeat(record, targets)))
        check_known("--slo", targets, [tried.repeat for each in space.tried.values() for tried in each])
    with claim(folder, space.sweep({each.value for each in measured.values()})):
        return failed  # the experiment has the values of the search, and not those that only idle workers measured


def _present(searches: Searches, space: _Space, folder: Path, form: Form) -> bool:
    """Write the search and the report, print the table; whether any search found a value."""
    from harness.records.record import write_json
    from harness.records.results import SEARCH, write_summary
    from reports.cli.output import tell, wide
    from reports.pages.html import write_report
    from reports.replays.find import row
    from reports.runs.measured import load_run
    from reports.runs.side import side_of

    data = searches.as_dict()
    write_json(folder / SEARCH, data)
    # In the order of the searches and their values, not in that in which they wanted to know.
    tried = [each for one in searches.searched for each in sorted(one.tried)]
    summary = write_summary(folder, [each.repeat.point for each in tried])
    rows = [row(searches, one, folder) for one in searches.searched]
    console, side = wide(_WIDE, stderr=form != "table"), side_of(space.experiment)
    if form == "table":
        console.print(_table(searches, list(space.experiment.grid), rows, console.width >= _WIDE))
        tell(console, [*(each for row in rows for each in row["sentences"]), *side.notes(load_run(folder))])
    else:
        emit(form, rows, {**data, "found": rows})
    paths = [folder / SEARCH]
    if any(each["status"] == "ok" for each in summary):
        paths.append(write_report(folder))
    tell(console, paths)
    held = any(each[space.over] is not None for each in rows)
    if not held:
        typer.echo(f"nothing meets the targets, down to {space.over}={space.bounds.lowest:g}", err=True)
    return held


_WIDE = 120
"""Characters from which on the table has every cost."""
_NARROW = ("goodput_rps", "gpus")
"""Columns in a narrower terminal: the answer must fit."""


def _table(searches: Searches, axes: list[str], rows: list[dict[str, Any]], whole: bool) -> Any:
    from rich.box import SIMPLE_HEAD

    from reports.replays.find import COLUMNS, NOTE, asked, figure, held, spread
    from reports.tables.columns import MISSING
    from reports.tables.labels import short
    from reports.tables.plain_tables import grid

    over, axes = searches.question.over, [name for name in axes if name != "gpu"]
    several = ["over seeds"] if len(searches.question.seeds) > 1 else []
    columns = [column for column in COLUMNS if whole or column.metric in _NARROW]
    headings = ["engine", *axes, "hardware", over, *several, *(f"{c.heading}\n{c.unit}" for c in columns)]
    cells = []
    for row in rows:
        cell = [short(row["settings"][name]) if name in row["settings"] else MISSING for name in axes]
        numbers = [held(row, over), *([spread(row)] if several else []), *(figure(row, c) for c in columns)]
        cells.append([row["engine"], *cell, row["hardware"], *numbers])
    more = {"title": f"The largest {over} with {asked(searches)}", "caption": NOTE, "caption_justify": "left"}
    table = grid(headings, cells, len(axes) + 2, box=SIMPLE_HEAD, collapse_padding=True, **more)
    for column in table.columns:
        column.no_wrap = True
    return table
