"""Compare the results of two versions of the program, point by point, byte by byte.

    python -m tools.same_results BEFORE AFTER [--without COLUMN_OR_METRIC ...]

BEFORE and AFTER are results folders, or folders of results folders. A point is known by what was asked of it, because
ids hold the program. Names given with `--without` belong to removed features: parameters, columns and metrics of these
names are left out. The exit status is 1 if anything differs or if a point of BEFORE is missing.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import pyarrow.parquet as pq
import typer

Points = dict[str, Path]


def points(folder: Path, without: frozenset[str]) -> Points:
    """What was asked of each finished point, as JSON -> the folder of its record."""
    found = {}
    for manifest in sorted(folder.rglob("points/*/manifest.json")):
        asked = json.loads(manifest.read_text())["point"]
        del asked["code_hash"]
        asked.pop("schema_version", None)
        run = str(manifest.parents[2].relative_to(folder))
        found[f"{run} {json.dumps(_pruned(asked, without), sort_keys=True)}"] = manifest.parent
    return found


def differences(before: Path, after: Path, without: frozenset[str]) -> Iterator[tuple[str, str | None]]:
    """Each file of a point's record, with what differs in it; None for equal bytes or, without names, equal values."""
    same = _numbers(before, without) == _numbers(after, without)
    yield "metrics and counters", None if same else "have other values"
    for file in sorted({*_data(before), *_data(after)}):
        old, new = before / file, after / file
        if not (old.is_file() and new.is_file()):
            yield file, "is missing on one side"
        elif old.read_bytes() == new.read_bytes():
            yield file, None
        else:
            same = bool(without) and _equal(pq.read_table(old), pq.read_table(new), without)
            yield file, None if same else "has other bytes"


def _equal(old: pa.Table, new: pa.Table, without: frozenset[str]) -> bool:
    """Return whether the tables have the same columns and values; a missing value equals itself."""
    kept = [table.drop_columns([*without.intersection(table.column_names)]) for table in (old, new)]
    metadata = old.schema.metadata is not None
    return kept[0].schema.equals(kept[1].schema, metadata) and kept[0].to_pandas().equals(kept[1].to_pandas())


def _numbers(record: Path, without: frozenset[str]) -> Any:
    """The metrics of a point, which stand in the summary of its results, and its counters."""
    rows = json.loads((record.parents[1] / "summary.json").read_text())
    metrics = next((row["metrics"] for row in rows if row["point"] == record.name), None)
    counters = json.loads((record / "run.json").read_text())["counters"]
    return _pruned([metrics, counters], without)


def _data(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if path.suffix == ".parquet"]


def _pruned(value: Any, without: frozenset[str]) -> Any:
    if isinstance(value, dict):
        return {key: _pruned(each, without) for key, each in value.items() if key not in without}
    return [_pruned(each, without) for each in value] if isinstance(value, list) else value


def main(
    before: Path,
    after: Path,
    without: Annotated[list[str], typer.Option(help="a parameter, column or metric that was removed")] = [],  # noqa: B006
) -> None:
    """Print how many points and files are the same, and everything that differs."""
    names = frozenset(without)
    old, new = points(before, names), points(after, names)
    compared, different = 0, []
    for key in old.keys() & new.keys():
        for file, why in differences(old[key], new[key], names):
            compared += 1
            different += [f"{old[key].relative_to(before)}/{file} {why}: {key}"] if why else []
    missing, added = sorted(old.keys() - new.keys()), sorted(new.keys() - old.keys())
    print(f"{len(old.keys() & new.keys())} points, {compared} tables and summaries: {len(different)} differ.")
    for line in (
        *(f"differs: {each}" for each in sorted(different)),
        *(f"only before: {each}" for each in missing),
        *(f"only after: {each}" for each in added),
    ):
        print(line)
    raise typer.Exit(1 if different or missing else 0)


if __name__ == "__main__":
    typer.run(main)
