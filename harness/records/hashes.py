"""The bytes of a run's results, point by point: what a change of the program that changes no result must leave alone.

    python -m harness.records.hashes results/bench > before.json
    python -m harness.records.hashes results/bench --check before.json

Points go by their labels, as ids cover the program. The exit status is 1 where a point differs or is missing.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Annotated

import typer

from harness.records.record import load_record
from harness.records.results import read_results

TABLES = ("requests", "events", "steps")


def hashes(folder: Path) -> dict[str, dict[str, str]]:
    """SHA-256 of each table of each measured point under `folder`, by the point's label."""
    _, rows = read_results(folder)
    records = [load_record(folder / "points" / row["point"]) for row in rows if row["status"] == "ok"]
    return {
        record.point.label: {
            table: hashlib.sha256((record.folder / f"{table}.parquet").read_bytes()).hexdigest()
            for table in TABLES
        }
        for record in records
    }


def main(folder: Path, check: Annotated[Path | None, typer.Option(help="hashes of before")] = None) -> None:
    """Print the hashes of a run's tables, or compare them with those of before."""
    now = hashes(folder)
    if check is None:
        print(json.dumps(now, indent=1, sort_keys=True))
        return
    before = json.loads(check.read_text())
    for table in TABLES:
        same = sum(now.get(label, {}).get(table) == known[table] for label, known in before.items())
        print(f"{table}: {same} of {len(before)} points have the same bytes")
    differing = [label for label, known in before.items() if now.get(label) != known]
    print(*(f"differs: {label}" for label in differing), sep="\n", end="\n" if differing else "")
    raise typer.Exit(1 if differing else 0)


if __name__ == "__main__":
    typer.run(main)
