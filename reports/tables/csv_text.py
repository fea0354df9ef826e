"""Rows as the text of a CSV file, with numbers as they are and not as they are shown."""

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any


def csv_of(rows: Sequence[Mapping[str, Any]]) -> str:
    """A line for each row, and one of headings: all names that any row has."""
    flat = [dict(_flat(row)) for row in rows]
    text = io.StringIO()
    headings = dict.fromkeys(name for row in flat for name in row)
    writer = csv.DictWriter(text, list(headings), lineterminator="\n")
    writer.writeheader()
    writer.writerows(flat)
    return text.getvalue()


def _flat(row: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """What is nested has names with dots; a list is JSON in its cell."""
    for name, value in row.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{name}.")
        elif isinstance(value, Sequence) and not isinstance(value, str):
            yield f"{before}{name}", json.dumps(value, default=str)
        else:
            yield f"{before}{name}", value
