"""A results directory: what was run, the records of its points and the summary over them.

DIR/experiment.json   the experiment as it was resolved for the latest run, or instead
DIR/collection.json   several of them, which share points: the panels of the figures of a paper
DIR/points/           records, see `harness.record`
DIR/summary.json      [{point, engine, device, workload, params, seed, status, metrics}], in the order of the run
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from harness.experiment import SCHEMA_VERSION, Experiment, Point
from harness.record import SUMMARY, Record, failed, load_record, write_json
from workloads.errors import Model, UserError, validate

EXPERIMENT, COLLECTION = "experiment.json", "collection.json"
_TEMPORARY = ".tmp-"


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
    def points(self) -> list[str]:
        """The ids of all points, each once, in the order of cards, panels and experiments."""
        return list(
            dict.fromkeys(
                id for panels in self.cards.values() for panel in panels.values() for id in panel.points
            )
        )


@contextmanager
def claim(path: Path, owner: Experiment | Collection) -> Iterator[Path]:
    """Take or make the directory for one run of `owner`; yields the directory of its points.

    Cards of a collection that this run leaves out stay in the directory as they are. UserError when it cannot
    be written, belongs to something else, or another run holds it. What a killed run left half-written is swept.
    """
    descriptor = _open(path)
    try:
        _check_owner(path, owner)
        _lock(path, descriptor)
        try:
            (path / "points").mkdir(exist_ok=True)
            if isinstance(owner, Collection) and (path / COLLECTION).exists():
                stored = read_collection(path)
                owner = owner.model_copy(update={"cards": {**stored.cards, **owner.cards}})
            data = {"schema_version": SCHEMA_VERSION, **owner.model_dump(mode="json")}
            _replace_json(path / _file(owner), data)
            for folder in (path, path / "points"):
                for left in folder.glob(f"{_TEMPORARY}*"):
                    shutil.rmtree(left) if left.is_dir() else left.unlink()
        except OSError as error:
            raise UserError(f"{path} cannot be written: {error.strerror}; choose another --out.") from None
        yield path / "points"
    finally:
        os.close(descriptor)


def ids(path: Path, points: Sequence[Point]) -> list[str]:
    """The points that DIR/summary.json is about: those of the run, in a collection those of all its cards."""
    if (path / COLLECTION).exists():
        return read_collection(path).points
    return [point.id for point in points]


def unfinished(points_dir: Path, points: Sequence[Point]) -> list[Point]:
    """The points without a finished record, failed ones among them; UserError for a damaged record."""
    folders = {point.id: points_dir / point.id for point in points}
    finished = {id for id, folder in folders.items() if folder.exists() and load_record(folder)}
    return [point for point in points if point.id not in finished]


def find_record(points_dir: Path, id: str) -> Record | None:
    """The finished or the failed record of a point; None where there is neither. UserError for a damaged one."""
    for folder in (points_dir / id, failed(points_dir, id)):
        if folder.exists():
            return load_record(folder)
    return None


def write_summary(path: Path, ids: Iterable[str]) -> list[dict[str, Any]]:
    """Write DIR/summary.json over those of the points that finished or failed, and return it."""
    records = [find_record(path / "points", id) for id in ids]
    rows = [_row(record) for record in records if record is not None]
    _replace_json(path / SUMMARY, rows)
    return rows


def read_results(path: Path) -> tuple[Experiment, list[dict[str, Any]]]:
    """Experiment and summary of a results directory; UserError if it is none."""
    if (path / COLLECTION).is_file():
        name = read_collection(path).name
        raise UserError(
            f"{path} holds the cards of {name!r}, not one experiment; see `rehearse report {path}` "
            f"and `rehearse claims {name}`."
        )
    if not (path / EXPERIMENT).is_file():
        raise UserError(f"{path} is not a results directory (no {EXPERIMENT}); give the --out of a run.")
    if not (path / SUMMARY).is_file():
        raise UserError(f"{path} has no {SUMMARY} yet; run the experiment to its end first.")
    rows = _read_json(path / SUMMARY)
    for row in rows:
        load_record(path / "points" / (row["point"] + ("" if row["status"] == "ok" else ".failed")))
    return _read_owner(path / EXPERIMENT, Experiment), rows


def read_collection(path: Path) -> Collection:
    """The collection of a results directory; UserError if it holds none."""
    if not (path / COLLECTION).is_file():
        raise UserError(f"{path} holds no cards of a paper (no {COLLECTION}); give the --out of such a run.")
    return _read_owner(path / COLLECTION, Collection)


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
    """The directory itself, as a descriptor to lock: a lock file would be one more file to explain."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        if not os.access(path, os.W_OK | os.X_OK):
            raise PermissionError(13, "permission denied")
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    except FileExistsError:
        raise UserError(f"{path} is a file, and results need a directory; choose another --out.") from None
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror}; choose another --out.") from None


def _file(owner: Experiment | Collection) -> str:
    return EXPERIMENT if isinstance(owner, Experiment) else COLLECTION


def _check_owner(path: Path, owner: Experiment | Collection) -> None:
    kinds = {EXPERIMENT: Experiment, COLLECTION: Collection}
    stored = [_read_owner(path / name, kind) for name, kind in kinds.items() if (path / name).exists()]
    if not stored and any(not entry.name.startswith(_TEMPORARY) for entry in path.iterdir()):
        raise UserError(f"{path} holds other files and no {_file(owner)}; choose an empty or new --out.")
    for other in stored:
        if other.name != owner.name or type(other) is not type(owner):
            raise UserError(
                f"{path} holds results of {other.name!r}, not of {owner.name!r}; choose another --out."
            )


def _lock(path: Path, descriptor: int) -> None:
    """Held until the descriptor closes, so also a killed run gives it back."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise UserError(f"{path} is in use by another run; wait for it or choose another --out.") from None


def _read_owner(path: Path, kind: type[Model]) -> Model:
    data = _read_json(path)
    version = data.pop("schema_version", 0) if isinstance(data, dict) else 0
    if version > SCHEMA_VERSION:
        raise UserError(
            f"{path} has schema version {version}, newer than {SCHEMA_VERSION}; upgrade rehearsal."
        )
    return validate(kind, data, str(path))


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text())
    except (OSError, UnicodeDecodeError, json.JSONDecodeError):
        raise UserError(f"{path} is damaged; delete it and run again.") from None


def _replace_json(path: Path, data: Any) -> None:
    draft = path.with_name(f"{_TEMPORARY}{path.name}")
    write_json(draft, data)
    draft.replace(path)
