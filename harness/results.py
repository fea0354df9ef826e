"""A results directory: the experiment, the records of its points and the summary over them.

DIR/experiment.json   the experiment as it was resolved for the latest run DIR/points/           records, see
`harness.record` DIR/summary.json      [{point, engine, device, workload, params, seed, status, metrics}], in
the experiment's order
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from harness.experiment import SCHEMA_VERSION, Experiment, Point
from harness.record import SUMMARY, failed, load_record, write_json
from workloads.errors import UserError, validate

EXPERIMENT = "experiment.json"
_TEMPORARY = ".tmp-"


@contextmanager
def claim(path: Path, experiment: Experiment) -> Iterator[Path]:
    """Take or make the directory for one run of `experiment`; yields the directory of its points.

    UserError when it cannot be written, belongs to something else, or another run holds it. What a killed run
    left half-written is swept.
    """
    descriptor = _open(path)
    try:
        _check_owner(path, experiment)
        _lock(path, descriptor)
        try:
            (path / "points").mkdir(exist_ok=True)
            _replace_json(
                path / EXPERIMENT, {"schema_version": SCHEMA_VERSION, **experiment.model_dump(mode="json")}
            )
            for folder in (path, path / "points"):
                for left in folder.glob(f"{_TEMPORARY}*"):
                    shutil.rmtree(left) if left.is_dir() else left.unlink()
        except OSError as error:
            raise UserError(f"{path} cannot be written: {error.strerror}; choose another --out.") from None
        yield path / "points"
    finally:
        os.close(descriptor)


def unfinished(points_dir: Path, points: Sequence[Point]) -> list[Point]:
    """The points without a finished record, failed ones among them; UserError for a damaged record."""
    folders = {point.id: points_dir / point.id for point in points}
    finished = {id for id, folder in folders.items() if folder.exists() and load_record(folder)}
    return [point for point in points if point.id not in finished]


def write_summary(path: Path, points: Sequence[Point]) -> list[dict[str, Any]]:
    """Write DIR/summary.json over those of `points` that finished or failed, and return it."""
    rows = [row for point in points if (row := _row(path / "points", point)) is not None]
    _replace_json(path / SUMMARY, rows)
    return rows


def read_results(path: Path) -> tuple[Experiment, list[dict[str, Any]]]:
    """Experiment and summary of a results directory; UserError if it is none."""
    if not (path / EXPERIMENT).is_file():
        raise UserError(f"{path} is not a results directory (no {EXPERIMENT}); give the --out of a run.")
    if not (path / SUMMARY).is_file():
        raise UserError(f"{path} has no {SUMMARY} yet; run the experiment to its end first.")
    rows = _read_json(path / SUMMARY)
    for row in rows:
        load_record(path / "points" / (row["point"] + ("" if row["status"] == "ok" else ".failed")))
    return _read_experiment(path / EXPERIMENT), rows


def _row(points_dir: Path, point: Point) -> dict[str, Any] | None:
    folder = points_dir / point.id
    if not folder.exists():
        folder = failed(points_dir, point.id)
    if not folder.exists():
        return None
    record = load_record(folder)
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
    return row if row["status"] == "ok" else {**row, "error": record.manifest["error"]}


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


def _check_owner(path: Path, experiment: Experiment) -> None:
    if not (path / EXPERIMENT).exists():
        if any(not entry.name.startswith(_TEMPORARY) for entry in path.iterdir()):
            raise UserError(f"{path} holds other files and no {EXPERIMENT}; choose an empty or new --out.")
        return
    owner = _read_experiment(path / EXPERIMENT).name
    if owner != experiment.name:
        raise UserError(
            f"{path} holds results of {owner!r}, not of {experiment.name!r}; choose another --out."
        )


def _lock(path: Path, descriptor: int) -> None:
    """Held until the descriptor closes, so also a killed run gives it back."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise UserError(f"{path} is in use by another run; wait for it or choose another --out.") from None


def _read_experiment(path: Path) -> Experiment:
    data = _read_json(path)
    version = data.pop("schema_version", 0) if isinstance(data, dict) else 0
    if version > SCHEMA_VERSION:
        raise UserError(
            f"{path} has schema version {version}, newer than {SCHEMA_VERSION}; upgrade rehearsal."
        )
    return validate(Experiment, data, str(path))


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text())
    except (OSError, UnicodeDecodeError, json.JSONDecodeError):
        raise UserError(f"{path} is damaged; delete it and run again.") from None


def _replace_json(path: Path, data: Any) -> None:
    draft = path.with_name(f"{_TEMPORARY}{path.name}")
    write_json(draft, data)
    draft.replace(path)
