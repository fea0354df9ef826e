"""Tables are pinned by their hash. A file of this folder keeps enough to say what differs when the hash does:
in its first line the number of rows, the sums of the columns and checksums of pieces; in the others a few rows.
"""

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
KEPT, PIECES = 12, 64
"""[chosen] rows of a table that are kept, and pieces of it with a checksum each."""
MOST_VALUES = 20
"""[chosen] most values of a column of text that are counted one by one."""


def check(name: str, table: pd.DataFrame, hash: str) -> None:
    """Assert that `hash` of `table` is the one that is pinned as `name`, or say what differs. With PIN_GOLDEN=1 in the
    environment it is pinned anew."""
    path = FOLDER / f"{name}.jsonl"
    if os.environ.get("PIN_GOLDEN") == "1":
        kept = [{"row": at, **_row(table, at)} for at in _cuts(len(table) - 1, KEPT - 1)]
        path.write_text("".join(json.dumps(line) + "\n" for line in [_about(table, hash), *kept]))
    pinned, *rows = map(json.loads, path.read_text().splitlines())
    if hash != pinned["hash"]:
        told = [f"{name}: hash {pinned['hash']} -> {hash}", *_differences(pinned, rows, table)]
        told.append("if that is meant: PIN_GOLDEN=1 pytest ..., and say in the commit why")
        raise AssertionError("\n  ".join(told))


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


def _row(table: pd.DataFrame, at: int) -> dict[str, Any]:
    """Return the values of a row that are not missing, as JSON has them."""
    values = {name: table[name].iloc[at] for name in table}
    return {
        name: value.item() if isinstance(value, np.generic) else value
        for name, value in values.items()
        if value == value and value != ""
    }


def _facts(column: Any) -> dict[str, float]:
    """Return the exact sum of a column of numbers, or the count of each value of a column of text."""
    there = column.dropna()
    if pd.api.types.is_numeric_dtype(column):
        return {"sum": math.fsum(there), "missing": len(column) - len(there)}
    counts = Counter(map(str, there))
    return dict(sorted(counts.items())) if len(counts) <= MOST_VALUES else {"distinct": len(counts)}


def _differences(pinned: dict[str, Any], rows: list[dict[str, Any]], table: pd.DataFrame) -> list[str]:
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
    for kept in rows:
        at = kept.pop("row")
        if changes := _changes(kept, _row(table, at) if at < len(table) else {}):
            lines.append(f"row {at}, for example: {changes}")
            break
    return lines


def _changes(before: dict[str, Any], after: dict[str, Any]) -> str:
    names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    return ", ".join(f"{name} {before.get(name, '–')} -> {after.get(name, '–')}" for name in names)
