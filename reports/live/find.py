"""A search that was made, `find.json` beside its points: what was tried, what it found, and what that costs; and what a
measured point says of the targets of a search."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from harness.live.capacity import Capacity, answer, judge
from harness.records.record import Record
from harness.records.results import find_record
from harness.slo.search import Bounds, Search
from harness.slo.targets import Repeat, Target, judged_value
from reports.cost.energy import Energy, energy, energy_note, written
from reports.cost.usage import hardware, money, usage
from reports.runs.measured import Run
from reports.tables.columns import INVALID, MISSING
from reports.tables.labels import short
from workloads.errors import UserError

FIND = "find.json"
"""The search, beside the results of its points."""


class Tried(NamedTuple):
    """One point; they sort by value and seed."""

    value: float
    seed: int
    repeat: Repeat


@dataclass(frozen=True)
class Searched:
    """One engine at one setting of the experiment's axes; `tried` in the order in which it was."""

    engine: str
    settings: Mapping[str, Any]
    tried: Sequence[Tried]

    @property
    def label(self) -> str:
        return " ".join([self.engine, *(f"{name}={short(value)}" for name, value in self.settings.items())])


@dataclass(frozen=True)
class Finding:
    """`prices` of an hour and `watts`: of one GPU, by its name, as the user gave them."""

    over: str
    targets: tuple[Target, ...]
    bounds: Bounds
    seeds: tuple[int, ...]
    prices: Mapping[str, float]
    watts: Mapping[str, float]
    searched: tuple[Searched, ...]

    def search(self, one: Searched) -> Search:
        """Return the search by the points' values, of the targets alone. A failed point meets none."""
        met: dict[int, dict[float, bool]] = {seed: {} for seed in self.seeds}
        for tried in one.tried:
            met[tried.seed][tried.value] = tried.repeat.meets(self.targets)
        return Search(self.bounds, met)

    def sentences(self, one: Searched) -> list[str]:
        """Return sentences on the largest value that holds, on why no larger one does, and on seeds for which this was
        not monotone."""
        search = self.search(one)
        steps = tuple(
            judge(value, [tried.repeat for tried in one.tried if tried.value == value], self.targets)
            for value in sorted(search.together)
        )
        capacity = Capacity(self.targets, steps, self.bounds.highest)
        told = [f"{one.label} {answer(capacity, lambda value: f'{self.over}={value:g}')}"]
        for seed, (missed, held) in search.surprises.items():
            told.append(
                f"{one.label}: seed {seed} missed a target at {self.over}={missed:g} and met all at {held:g}, so this "
                "is not monotone, and what it holds is where it first breaks."
            )
        return told

    @property
    def asked(self) -> str:
        """The targets in words."""
        return ", ".join(map(str, self.targets))

    @property
    def answer(self) -> str:
        """Return the result of every search, in one sentence."""
        found = [(one.label, self.search(one)) for one in self.searched]
        told = (
            f"{label} {'nothing' if s.holds is None else f'{self.over}={s.holds:g}'}"
            + (" or more" if s.holds is not None and s.breaks is None else "")
            for label, s in found
        )
        return f"With {self.asked}, these hold: {', '.join(told)} ({_basis(len(self.seeds))})."

    def row(self, one: Searched, folder: Path) -> dict[str, Any]:
        """For tables and programs: GPU-seconds, J and money for a turn, a minute of conversation, a million tokens."""
        search = self.search(one)
        at = [tried for tried in one.tried if tried.value == search.holds]
        gpu, gpus = hardware(_record(folder, one.tried[0]))
        used = usage([_record(folder, tried) for tried in at], self.targets)
        price, watts = self.prices.get(gpu), self.watts.get(gpu)
        turn = energy(gpu, used.gpu_s_per_turn, used.kernel_j_per_turn, watts)
        minute = energy(gpu, used.gpu_s_per_minute, used.kernel_j_per_minute, watts)
        million = energy(gpu, used.gpu_s_per_million, used.kernel_j_per_million, watts)
        return {
            "engine": one.engine,
            "settings": dict(one.settings),
            "hardware": gpu,
            "gpus": gpus,
            self.over: search.holds,
            "at_least": search.holds is not None and search.breaks is None,
            "over_seeds": asdict(search.interval),
            "goodput_rps": used.goodput_rps,
            "gpu_s_per_turn": used.gpu_s_per_turn,
            "gpu_s_per_minute": used.gpu_s_per_minute,
            "gpu_s_per_million_tokens": used.gpu_s_per_million,
            "energy_basis": turn.basis,
            "j_per_turn": turn.j,
            "j_per_turn_at_most": turn.at_most,
            "j_per_minute": minute.j,
            "j_per_minute_at_most": minute.at_most,
            "j_per_million_tokens": million.j,
            "j_per_million_tokens_at_most": million.at_most,
            "price_per_minute": money(price, used.gpu_s_per_minute),
            "price_per_million_tokens": money(price, used.gpu_s_per_million),
            "points": len(one.tried),
            "sentences": self.sentences(one),
        }


class Shown(NamedTuple):
    """A column of the table. `name` in the row; numbers are written with so many significant digits."""

    name: str
    heading: str
    unit: str


COLUMNS = (
    Shown("goodput_rps", "goodput", "turns/s"),
    Shown("gpus", "GPUs", ""),
    Shown("gpu_s_per_minute", "GPU·s", "/min"),
    Shown("price_per_minute", "price", "/min"),
    Shown("gpu_s_per_million_tokens", "GPU·s", "/Mtok"),
    Shown("price_per_million_tokens", "price", "/Mtok"),
    Shown("j_per_turn", "J", "a turn"),
    Shown("j_per_minute", "J", "a minute"),
)
NOTE = (
    "over seeds: the largest that each one holds, median (lowest to highest); min: a minute of one session on line; "
    "Mtok: a million text tokens at the clients"
)


def note(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the note on the columns, and on the basis of these rows' energy."""
    return "; ".join([NOTE, *energy_note(row["energy_basis"] for row in rows)])


def _basis(seeds: int) -> str:
    return "one seed" if seeds == 1 else f"every one of {seeds} seeds"


def held(row: Mapping[str, Any], over: str) -> str:
    """`14`, `≥ 24` or `–`."""
    value = row[over]
    return MISSING if value is None else f"{'≥ ' if row['at_least'] else ''}{value:g}"


def spread(row: Mapping[str, Any]) -> str:
    """`15 (14 to 17)`."""
    low, middle, high = (MISSING if v is None else f"{v:g}" for v in row["over_seeds"].values())
    return f"{middle} ({low} to {high})"


def figure(row: Mapping[str, Any], column: Shown) -> str:
    """The number as a table has it."""
    value = row[column.name]
    if column.name in ("j_per_turn", "j_per_minute"):
        return Energy(row["energy_basis"], value, row[f"{column.name}_at_most"]).text
    return written(value)


def as_dict(finding: Finding) -> dict[str, Any]:
    """For find.json."""
    searched = [
        {
            "engine": one.engine,
            "settings": dict(one.settings),
            "tried": [{"value": t.value, "seed": t.seed, **t.repeat.as_dict()} for t in one.tried],
        }
        for one in finding.searched
    ]
    targets = [asdict(target) for target in finding.targets]
    fields = {name: getattr(finding, name) for name in ("over", "seeds", "prices", "watts")}
    return {
        "schema_version": 1,
        **fields,
        "targets": targets,
        "bounds": asdict(finding.bounds),
        "searched": searched,
    }


def load_finding(run: Run) -> Finding | None:
    """The search that these points were measured for; None where there was none. UserError for a damaged file."""
    path = run.folder / FIND
    if not path.is_file():
        return None
    try:
        finding = _from_dict(json.loads(path.read_text()))
    except (OSError, ValueError, KeyError, TypeError):
        raise UserError(f"{path} is damaged; delete it and search again.") from None
    # Another run into the same directory may have come after the search.
    tried = {each.repeat.point for one in finding.searched for each in one.tried}
    return finding if tried <= {point.point.id for point in run.points} else None


def _from_dict(data: Mapping[str, Any]) -> Finding:
    return Finding(
        over=data["over"],
        targets=tuple(Target(**target) for target in data["targets"]),
        bounds=Bounds(**data["bounds"]),
        seeds=tuple(data["seeds"]),
        prices=data["prices"],
        watts=data["watts"],
        searched=tuple(
            Searched(
                one["engine"],
                one["settings"],
                [Tried(t["value"], t["seed"], Repeat.from_dict(t)) for t in one["tried"]],
            )
            for one in data["searched"]
        ),
    )


def _record(folder: Path, tried: Tried) -> Record:
    record = find_record(folder / "points", tried.repeat.point)
    assert record is not None, "the search measured it"
    return record


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
