"""A table of other people's data in any of the formats that are read, by what stands in the file."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from workloads.errors import existing_file
from workloads.files.csv_file import CsvFile
from workloads.files.json_file import JsonFile
from workloads.files.packed import PARQUET, read_packed
from workloads.files.parquet_file import ParquetFile
from workloads.files.row_file import RowFile

Form = Literal["parquet", "json", "csv"]


def form_of(path: str | Path) -> Form:
    """Return the format of a file, packed or not. UserError for a file that cannot be read."""
    begin = read_packed(existing_file(path), 4096)
    if begin.startswith(PARQUET):
        return "parquet"
    return "json" if begin.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] in (b"{", b"[") else "csv"


def open_rows(path: str | Path, limit: int | None = None, skip_bad: bool = False) -> RowFile:
    """Return the first `limit` rows (None: all). Fields within an object are columns, too, as `outer.inner`."""
    match form_of(path):
        case "parquet":
            return ParquetFile(path, limit, skip_bad)
        case "json":
            return JsonFile(path, limit, skip_bad, inner=True)
        case "csv":
            return CsvFile(path, limit, skip_bad)
