"""Tables are pinned by their hash. A file of this folder keeps enough to say what differs when the hash does: the rows,
the sums of the columns and checksums of pieces."""

import json
import math
import os
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import pandas as pd

from workloads.trace import Trace

FOLDER = Path(__file__).parent
PIECES = 64
"""[chosen] pieces of a table with a checksum each."""
MOST_VALUES = 20
"""[chosen] most values of a column of text that are counted one by one."""


def check(name: str, table: pd.DataFrame, hash: str) -> None:
    """Assert that `hash` of `table` is the one that is pinned as `name`, or say what differs. With PIN_GOLDEN=1 in the
    environment it is pinned anew."""
    path = FOLDER / f"{name}.json"
    if os.environ.get("PIN_GOLDEN") == "1":
        path.write_text(json.dumps(_about(table, hash)) + "\n")
    pinned = json.loads(path.read_text())
    if hash != pinned["hash"]:
        said = [f"{name}: hash {pinned['hash']} -> {hash}", *_differences(pinned, table)]
        said.append("if that is meant: PIN_GOLDEN=1 pytest ..., and say in the commit why")
        raise AssertionError("\n  ".join(said))


def check_trace(name: str, trace: Trace) -> None:
    check(name, pd.DataFrame(trace.columns()), trace.header.hash)


def _about(table: pd.DataFrame, hash: str) -> dict[str, Any]:
    columns = {name: _facts(table[name]) for name in table}
    return {"hash": hash, "rows": len(table), "columns": columns, "pieces": _checksums(table, len(table))}


def _cuts(last: int, pieces: int) -> list[int]:
    """Return begins and ends of pieces of 0 to `last`."""
    return sorted({round(at) for at in np.linspace(0, last, pieces + 1)})


def _checksums(table: pd.DataFrame, rows: int) -> list[str]:
    """Return the checksum of each piece of the first `rows` rows."""
    cuts = _cuts(rows, PIECES)
    return [f"{crc32(table[a:b].to_csv(header=False).encode()):08x}" for a, b in pairwise(cuts)]


def _facts(column: Any) -> dict[str, float]:
    """Return the exact sum of a column of numbers, or the count of each value of a column of text."""
    there = column.dropna()
    if pd.api.types.is_numeric_dtype(column):
        return {"sum": math.fsum(there), "missing": len(column) - len(there)}
    counts = Counter(map(str, there))
    return dict(sorted(counts.items())) if len(counts) <= MOST_VALUES else {"distinct": len(counts)}


def _differences(pinned: dict[str, Any], table: pd.DataFrame) -> list[str]:
    """Return one line for each difference, pinned -> now."""
    lines = []
    if len(table) != pinned["rows"]:
        lines.append(f"rows: {pinned['rows']} -> {len(table)}")
    now = {name: _facts(table[name]) for name in table}
    for name in {**pinned["columns"], **now}:
        if changes := _changes(pinned["columns"].get(name, {}), now.get(name, {})):
            lines.append(f"column {name}: {changes}")
    checksums = _checksums(table, pinned["rows"])
    pieces = zip(pinned["pieces"], checksums, pairwise(_cuts(pinned["rows"], PIECES)), strict=True)
    if where := next((piece for before, after, piece in pieces if before != after), None):
        lines.append(f"the first difference is in rows {where[0]} to {where[1] - 1}")
    return lines


def _changes(before: dict[str, Any], after: dict[str, Any]) -> str:
    names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    return ", ".join(f"{name} {before.get(name, '–')} -> {after.get(name, '–')}" for name in names)
