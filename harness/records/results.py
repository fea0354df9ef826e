"""A results directory: what was run, the records of its points and the summary over them.

DIR/experiment.json   the experiment as it was resolved for the latest run, or instead
DIR/collection.json   several of them, which share points: the panels of the figures of a paper
DIR/points/           records, see `harness.records.record`
DIR/summary.json      [{point, engine, device, workload, params, seed, status, metrics}], in the order of the run
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from harness.experiments.experiment import SCHEMA_VERSION, Experiment, check_schema
from harness.experiments.point import GROUPS, Point
from harness.records.record import (
    MANIFEST,
    SUMMARY,
    Damaged,
    Record,
    failed,
    load_record,
    read_metrics,
    write_json,
)
from workloads.atomic_file import TEMPORARY, cannot_write, own_folder, replacing
from workloads.errors import REMOVED, Model, UserError, validate

EXPERIMENT, COLLECTION = "experiment.json", "collection.json"
DAMAGED = ".damaged"
"""Suffix of damaged files and folders once a run writes them anew."""
_log = logging.getLogger(__name__)


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
            dict.fromkeys(
                id for panels in self.cards.values() for panel in panels.values() for id in panel.points
            )
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
            own = path / _file(owner)
            if damaged is not None:
                # Copied: it says that these are results until the new one takes its place.
                aside = own.with_name(own.name + DAMAGED)
                with replacing(aside) as copy:
                    copy.write(own.read_bytes())
                _log.warning(
                    "%s; it is kept as %s, and what this run asks for is stored.", damaged.what, aside
                )
            if isinstance(owner, Collection) and own.exists() and damaged is None:
                stored = read_collection(path)
                owner = owner.model_copy(update={"cards": {**stored.cards, **owner.cards}})
            data = {"schema_version": SCHEMA_VERSION, **owner.model_dump(mode="json")}
            # First: a directory with other files and without this one is taken for somebody else's.
            write_json(own, data)
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


def unfinished(points_dir: Path, points: Sequence[Point]) -> list[Point]:
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


def write_summary(path: Path, ids: Iterable[str]) -> list[dict[str, Any]]:
    """Write DIR/summary.json over the points that finished or failed, and return it.

    Damaged ones are left out: a run has set its own aside, and the report names those of other cards.
    """
    rows = []
    for id in ids:
        with contextlib.suppress(Damaged):
            if (record := find_record(path / "points", id)) is not None:
                rows.append(_row(record))
    write_json(path / SUMMARY, rows)
    return rows


def read_results(path: Path) -> tuple[Experiment, list[dict[str, Any]]]:
    """Return experiment and summary of a results directory. UserError if it is none, Damaged if it or a record is."""
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
    if not (path / SUMMARY).is_file():
        raise UserError(f"{path} has no {SUMMARY} yet; run the experiment to its end first.")
    experiment, rows = _read_owner(path / EXPERIMENT, Experiment), _read_json(path / SUMMARY)
    if not isinstance(rows, list):
        raise _damaged(path / SUMMARY, "is damaged: it holds no list of points")
    try:
        rows = [{**row, "metrics": read_metrics(row["metrics"])} for row in rows]
        for row in _checked(path, experiment, rows):
            record = load_record(
                path / "points" / (row["point"] + ("" if row["status"] == "ok" else ".failed"))
            )
            if row != _row(record):
                raise _damaged(path / SUMMARY, f"says something else of {row['point']} than its record")
    except (AttributeError, KeyError, TypeError):
        raise _damaged(path / SUMMARY) from None
    return experiment, rows


def _checked(path: Path, experiment: Experiment, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows of a summary. Damaged unless they are the experiment's points that have a record, each once."""
    found: dict[tuple[Any, ...], str] = {}
    for row in rows:
        if not _is_asked(experiment, row):
            raise _damaged(
                path / SUMMARY, f"has the point {row['point']}, which {EXPERIMENT} does not ask for"
            )
        cell = (row["engine"], row["seed"], *_cell(experiment, row))
        if cell in found:
            raise _damaged(
                path / SUMMARY, f"has {' '.join(map(str, cell))} twice, as {found[cell]} and {row['point']}"
            )
        found[cell] = row["point"]
    # An earlier program's record of the same cell has another id.
    for folder in record_folders(path / "points") if (path / "points").is_dir() else []:
        try:
            stored = _read_json(folder / MANIFEST)["point"]
            params = {name: value for group in GROUPS for name, value in stored[group].items()}
            point = {**stored, "params": params}
            asked = _is_asked(experiment, point)
        except (UserError, AttributeError, KeyError, TypeError):
            continue  # one that cannot be read is named where a row is about it
        if asked:
            cell = (point["engine"], point["seed"], *_cell(experiment, point))
            if cell not in found:
                raise _damaged(path / SUMMARY, f"lacks the point {folder.name}, which has a record")
    return rows


def _is_asked(experiment: Experiment, row: Mapping[str, Any]) -> bool:
    """Return whether the experiment has a point with this engine, seed and these parameters."""
    asked = {**{name: [value] for name, value in experiment.set.items()}, **experiment.grid}
    return (
        row["engine"] in experiment.engines
        and row["workload"] == experiment.workload
        and row["seed"] in experiment.seeds
        and all(
            any(_same(value, row["params"][name]) for value in values)
            for name, values in asked.items()
            if name in row["params"]
        )
    )


def _same(asked: Any, stored: Any) -> bool:
    """Return whether a parameter has the value asked for, as its model reads and writes it."""
    if asked is None or asked == stored or isinstance(asked, list | dict):
        return True
    try:
        return float(asked) == float(stored)
    except (TypeError, ValueError):
        return os.path.normpath(str(asked)) == os.path.normpath(str(stored))


def _cell(experiment: Experiment, row: Mapping[str, Any]) -> list[str]:
    return [f"{axis}={row['params'][axis]}" for axis in experiment.grid if axis in row["params"]]


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


def _row(record: Record) -> dict[str, Any]:
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
    files = [(path / EXPERIMENT, Experiment), (path / COLLECTION, Collection)]
    damaged = None
    for file, kind in files:
        try:
            stored = _read_owner(file, kind) if file.exists() else None
        except Damaged as error:
            # Of another kind, or without points beside it, it may be somebody else's.
            if kind is not type(owner) or not (path / "points").is_dir():
                raise UserError(f"{error.what}; choose another --out.") from None
            damaged = error
            continue
        if stored is not None and (type(stored) is not type(owner) or stored.name != owner.name):
            raise UserError(
                f"{path} holds results of {stored.name!r}, not of {owner.name!r}; choose another --out."
            )
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
    return Damaged(
        f"{path} {what}", "run its experiment again, which writes it anew and keeps what was measured"
    )
