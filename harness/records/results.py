"""A results directory: what was run, the records of its points and the summary over them.

DIR/experiment.json   the experiment as it was resolved for the latest run, and the ids of its points, or instead
DIR/collection.json   several of them, which share points: the panels of the figures of a paper
DIR/points/           records, see `harness.records.record`
DIR/summary.json      [{point, engine, device, workload, params, seed, status, metrics}], in the order of the run; for
                      people and other programs, as readers of ours take everything from the records
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import json
import logging
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict

from harness.experiments.experiment import SCHEMA_VERSION, Experiment, check_schema
from harness.experiments.point import Point
from harness.records.record import Damaged, Record, failed, load_record, write_json
from workloads.atomic_file import TEMPORARY, cannot_write, own_folder, replacing
from workloads.errors import REMOVED, Model, UserError, validate

EXPERIMENT, COLLECTION, SUMMARY = "experiment.json", "collection.json", "summary.json"
SEARCH = "search.json"
"""File of a search, with the results of its points (`harness.slo.search`)."""
P = TypeVar("P", bound=Point)
DAMAGED = ".damaged"
"""Suffix of damaged files and folders once a run writes them anew."""
_log = logging.getLogger(__name__)


class Stored(Experiment):
    """An experiment as its results directory has it. `points`: the ids of its points, None before they are measured."""

    points: list[str] | None = None


class Panel(BaseModel):
    """One experiment of a collection and the ids of its points; other panels may have the same points."""

    model_config = ConfigDict(extra="forbid")

    experiment: Experiment
    points: list[str]


class Collection(BaseModel):
    """Experiments that share a results directory: card -> panel -> experiment and points."""

    model_config = ConfigDict(extra="forbid")

    name: str
    cards: dict[str, dict[str, Panel]]

    @property
    def timeout_s(self) -> float:
        return max(panel.experiment.timeout_s for panels in self.cards.values() for panel in panels.values())

    @property
    def points(self) -> list[str]:
        """The ids of all points, each once, in the order of cards, panels and experiments."""
        return list(
            dict.fromkeys(id for panels in self.cards.values() for panel in panels.values() for id in panel.points)
        )


@contextlib.contextmanager
def claim(path: Path, owner: Experiment | Collection) -> Iterator[Path]:
    """Take or make the directory for one run of `owner`; yields the directory of its points.

    Cards of a collection that this run leaves out stay in the directory as they are. UserError when it cannot be
    written, belongs to another owner, or is locked by another run. Half-written records of a killed run are removed. A
    damaged file that should name the owner is kept next to the new one.
    """
    descriptor = _open(path)
    try:
        damaged = _check_owner(path, owner)
        _lock(path, descriptor)
        try:
            owner_file = path / _file(owner)
            if damaged is not None:
                # Copied: it says that these are results until the new one takes its place.
                aside = owner_file.with_name(owner_file.name + DAMAGED)
                with replacing(aside) as copy:
                    copy.write(owner_file.read_bytes())
                _log.warning("%s; it is kept as %s, and what this run asks for is stored.", damaged.what, aside)
            if isinstance(owner, Collection) and owner_file.exists() and damaged is None:
                stored = read_collection(path)
                owner = owner.model_copy(update={"cards": {**stored.cards, **owner.cards}})
            # First: a directory with other files and without this one is taken for somebody else's.
            _write_owner(path, owner)
            own_folder(path / "points")
            for folder in (path, path / "points"):
                for left in folder.glob(f"{TEMPORARY}*"):
                    shutil.rmtree(left) if left.is_dir() and not left.is_symlink() else left.unlink()
        except OSError as error:
            raise cannot_write(path, error) from None
        yield path / "points"
    finally:
        os.close(descriptor)


def ids(path: Path, points: Sequence[Point]) -> list[str]:
    """Return the points in DIR/summary.json: those of the run, or in a collection those of all its cards."""
    if (path / COLLECTION).exists():
        return read_collection(path).points
    return [point.id for point in points]


def unfinished(points_dir: Path, points: Sequence[P]) -> list[P]:
    """Return the points without a finished record, failed ones among them. A damaged record is kept as ID.damaged."""
    return [point for point in points if not _is_finished(points_dir / point.id, point)]


def find_record(points_dir: Path, id: str) -> Record | None:
    """Return the finished or the failed record of a point; None where there is neither. Damaged if it is."""
    for folder in (points_dir / id, failed(points_dir, id)):
        if folder.exists():
            return load_record(folder)
    return None


def record_folders(points_dir: Path) -> list[Path]:
    """Yield every finished and every failed record."""
    return [p for p in sorted(points_dir.iterdir()) if p.name[0] != "." and p.suffix != DAMAGED]


def write_summary(path: Path, ids: Sequence[str]) -> list[dict[str, Any]]:
    """Write DIR/summary.json over the points that finished or failed, and return it. Nothing reads it again: it is for
    people and other programs. An experiment also gets the ids of its points, which readers expect.

    Damaged ones are left out: a run has set its own aside, and the report names those of other cards.
    """
    rows = []
    for id in ids:
        with contextlib.suppress(Damaged):
            if (record := find_record(path / "points", id)) is not None:
                rows.append(summary_row(record))
    if (path / EXPERIMENT).is_file():
        _write_owner(path, _read_owner(path / EXPERIMENT, Stored).model_copy(update={"points": [*ids]}))
    write_json(path / SUMMARY, rows)
    return rows


def read_results(path: Path) -> tuple[Experiment, list[Record]]:
    """Return experiment and records of a results directory, in the order of the run. UserError if it is none, Damaged
    if it or a record is, or unless each cell of the experiment has one record, finished or failed, and no other has."""
    if (path / COLLECTION).is_file():
        name = read_collection(path).name
        raise UserError(
            f"{path} holds the cards of {name!r}, not one experiment; see `rehearse report {path}` "
            f"and `rehearse claims {name}`."
        )
    if path.is_file():
        raise UserError(f"{path} is a file, not a results directory; {REMOVED['results of another tool']}")
    if not (path / EXPERIMENT).is_file():
        raise UserError(f"{path} is not a results directory (no {EXPERIMENT}); give the --out of a run.")
    stored = _read_owner(path / EXPERIMENT, Stored)
    if stored.points is None:
        raise UserError(f"{path} has no results yet; run the experiment to its end first.")
    records = _found(path, stored.points, EXPERIMENT)
    _check_asked(path, stored, records)
    if not (path / SEARCH).is_file():  # a search measures what it wants to know
        _check_whole(path, stored, records)
    return Experiment.model_validate(stored.model_dump(exclude={"points"})), records


def read_panel(path: Path, panel: Panel) -> list[Record]:
    """Return the records of a panel of a collection. Damaged as `read_results`."""
    records = _found(path, panel.points, COLLECTION)
    _check_asked(path, panel.experiment, records)
    _check_whole(path, panel.experiment, records)
    return records


def _found(path: Path, ids: Sequence[str], owner: str) -> list[Record]:
    """Return the records of these ids. Damaged where one is missing; `owner`: the file that names them."""
    records = {id: find_record(path / "points", id) for id in ids}
    lacking = [id for id, record in records.items() if record is None]
    if lacking:
        more = f" and {len(lacking) - 1} more of {len(ids)}" if len(lacking) > 1 else ""
        raise _damaged(path, f"lacks the point {lacking[0]}{more}, which {owner} names")
    return [record for record in records.values() if record is not None]


def _check_asked(path: Path, experiment: Experiment, records: Sequence[Record]) -> None:
    """Raise Damaged unless each record is a point of the experiment, and each cell has one at most."""
    id_of: dict[tuple[Any, ...], str] = {}
    for record in records:
        point = record.point
        if not _is_asked(experiment, point):
            raise _damaged(path, f"has the point {point.id}, which {EXPERIMENT} does not ask for")
        cell = (point.engine, point.seed, *_cell(experiment, point))
        if cell in id_of:
            raise _damaged(path, f"has {' '.join(map(str, cell))} twice, as {id_of[cell]} and {point.id}")
        id_of[cell] = point.id


def _check_whole(path: Path, experiment: Experiment, records: Sequence[Record]) -> None:
    """Raise Damaged unless each engine, cell and seed of the experiment has a record. An axis counts where the point
    has it: a part of a system may bring parameters of its own."""
    lacking = []
    for engine in experiment.engines:
        points = [record.point for record in records if record.point.engine == engine]
        axes = [axis for axis in experiment.grid if any(axis in point.params for point in points)]
        for cell in itertools.product(*(experiment.grid[axis] for axis in axes)):
            asked = dict(zip(axes, cell, strict=True))
            there = {
                point.seed
                for point in points
                if all(_same(value, point.params.get(axis, value)) for axis, value in asked.items())
            }
            named = " ".join([engine, *(f"{axis}={value}" for axis, value in asked.items())])
            lacking += [f"{named} seed={seed}" for seed in experiment.seeds if seed not in there]
    if lacking:
        more = f" and {len(lacking) - 1} more of its points" if len(lacking) > 1 else ""
        raise _damaged(path, f"lacks {lacking[0]}{more}, for which {EXPERIMENT} asks")


def _write_owner(path: Path, owner: Experiment | Collection) -> None:
    write_json(path / _file(owner), {"schema_version": SCHEMA_VERSION, **owner.model_dump(mode="json")})


def _is_asked(experiment: Experiment, point: Point) -> bool:
    """Return whether the experiment has a point with this engine, device, seed and these parameters."""
    asked = {**{name: [value] for name, value in experiment.set.items()}, **experiment.grid}
    return (
        point.engine in experiment.engines
        and point.device == experiment.device
        and point.workload == experiment.workload
        and point.seed in experiment.seeds
        and all(
            any(_same(value, point.params[name]) for value in values)
            for name, values in asked.items()
            if name in point.params
        )
    )


def _same(asked: Any, stored: Any) -> bool:
    """Return whether a parameter has the value asked for, as its model reads and writes it."""
    if asked is None or asked == stored or isinstance(asked, list | dict):
        return True
    try:
        return float(asked) == float(stored)
    except (TypeError, ValueError):
        texts = [sorted(os.path.normpath(part) for part in str(each).split(",")) for each in (asked, stored)]
        return texts[0] == texts[1]  # a list, such as that of `scale`, in any order


def _cell(experiment: Experiment, point: Point) -> list[str]:
    return [f"{axis}={point.params[axis]}" for axis in experiment.grid if axis in point.params]


def read_collection(path: Path) -> Collection:
    """Return the collection of a results directory. UserError if it holds none."""
    if not (path / COLLECTION).is_file():
        raise UserError(f"{path} holds no cards of a paper (no {COLLECTION}); give the --out of such a run.")
    return _read_owner(path / COLLECTION, Collection)


def _is_finished(folder: Path, point: Point) -> bool:
    if not folder.exists():
        return False
    try:
        load_record(folder)
    except Damaged as error:
        aside = folder.with_name(folder.name + DAMAGED)
        shutil.rmtree(aside, ignore_errors=True)
        folder.rename(aside)
        _log.warning("%s; it is kept as %s, and %s is measured again.", error.what, aside.name, point.label)
        return False
    return True


def summary_row(record: Record) -> dict[str, Any]:
    """Return the row of a finished or failed point in DIR/summary.json."""
    point = record.point
    row = {
        "point": point.id,
        "engine": point.engine,
        "device": point.device,
        "workload": point.workload,
        "params": point.params,
        "seed": point.seed,
        "status": record.manifest["status"],
        "metrics": record.metrics,
    }
    # What an INVALID point measured stays in its record: no table or median is to take it for a result.
    return row if row["status"] == "ok" else {**row, "metrics": {}, "error": record.manifest["error"]}


def _open(path: Path) -> int:
    """Open the directory itself, as a descriptor to lock: a lock file would be one more file to explain."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        if not os.access(path, os.W_OK | os.X_OK):
            raise PermissionError(13, "permission denied")
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    except FileExistsError:
        raise UserError(f"{path} is a file, and results need a directory; choose another --out.") from None
    except OSError as error:
        raise cannot_write(path, error) from None


def _file(owner: Experiment | Collection) -> str:
    return EXPERIMENT if isinstance(owner, Experiment) else COLLECTION


def _check_owner(path: Path, owner: Experiment | Collection) -> Damaged | None:
    """Raise UserError where the results are not the owner's. Return the fault of the file that should name the owner,
    if it is damaged."""
    files = [(path / EXPERIMENT, Stored), (path / COLLECTION, Collection)]
    damaged = None
    for file, kind in files:
        try:
            stored = _read_owner(file, kind) if file.exists() else None
        except Damaged as error:
            # Of another kind, or without points beside it, it may be somebody else's.
            if not issubclass(kind, type(owner)) or not (path / "points").is_dir():
                raise UserError(f"{error.what}; choose another --out.") from None
            damaged = error
            continue
        if stored is not None and (not isinstance(stored, type(owner)) or stored.name != owner.name):
            raise UserError(f"{path} holds results of {stored.name!r}, not of {owner.name!r}; choose another --out.")
    if not any(file.exists() for file, _ in files) and any(
        not entry.name.startswith(TEMPORARY) for entry in path.iterdir()
    ):
        raise UserError(f"{path} holds other files and no {_file(owner)}; choose an empty or new --out.")
    return damaged


def _lock(path: Path, descriptor: int) -> None:
    """Lock the directory until the descriptor closes, so a killed run releases it too."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise UserError(f"{path} is in use by another run; wait for it or choose another --out.") from None


def _read_owner(path: Path, kind: type[Model]) -> Model:
    data = _read_json(path)
    if not isinstance(data, dict):
        raise _damaged(path)
    check_schema(data.pop("schema_version", 0), path)
    try:
        return validate(kind, data, str(path))
    except UserError as error:
        raise _damaged(path, f"is damaged: {str(error).removeprefix(f'{path}: ').rstrip('.')}") from None


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}; make it readable.") from None
    except (ValueError, RecursionError):
        raise _damaged(path, "is damaged: it is not valid JSON") from None


def _damaged(path: Path, what: str = "is damaged") -> Damaged:
    return Damaged(f"{path} {what}", "run its experiment again, which writes it anew and keeps what was measured")
