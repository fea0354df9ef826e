"""A CSV file of other people's data as checked columns. The header is row 1; blank lines are passed over."""

from __future__ import annotations

import csv
import io
import re
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from workloads.errors import UserError, printable
from workloads.files.packed import read_packed
from workloads.files.row_file import SHOWN, TOO_MANY, RowFile

if TYPE_CHECKING:
    import pandas as pd


_OTHERS = (";", "\t", "|")
"""Separators of a file whose header has no comma."""


class CsvFile(RowFile):
    """The cells of a CSV file as text, and checked columns of numbers from them; may be packed."""

    def __init__(
        self, path: str | Path, limit: int | None = None, skip_bad: bool = False, names: Sequence[str] | None = None
    ) -> None:
        """Read the header and the first `limit` rows (None: all); `names`: the file has no header."""
        super().__init__(path, skip_bad)
        frame, too_long = self._read(read_packed(self.path), names, limit)
        self._cells = {str(name).strip(): frame[name].str.strip() for name in frame.columns}
        first = 1 if names else 2
        numbers = np.setdiff1d(np.arange(first, first + len(frame) + len(too_long)), too_long)
        blank = np.ones(len(frame), bool)
        for cells in self._cells.values():
            if not blank.any():
                break
            blank[blank] = (cells[blank] == "").to_numpy(bool)
        if blank.any():
            self._cells = {name: cells[~blank] for name, cells in self._cells.items()}
        self._holds(numbers[~blank])
        if too_long:
            self.skipped[TOO_MANY] = len(too_long)
        if not len(self):
            if too_long:
                raise self.nothing_left()
            raise UserError(f"{self.path} has a header but no rows; give a file with at least one request.")

    def _read(self, data: bytes, names: Sequence[str] | None, limit: int | None) -> tuple[pd.DataFrame, list[int]]:
        """The frame, and the numbers of the rows left out for having too many fields.

        pandas cuts a first row that is too long to the header's length, and says nothing of later ones as
        long. So an empty row of the right length is put before the first, which makes it check all others.
        """
        import pandas as pd  # takes longer than all else that is imported here, and parameters need none

        separator = ","
        try:
            if names:
                header = 0
            else:
                end = re.search(rb"\r\n?|\n|$", data)
                assert end is not None
                header = end.end()
                if b"," not in data[:header]:
                    separator = next((each for each in _OTHERS if each.encode() in data[:header]), ",")
                names = [*pd.read_csv(io.BytesIO(data[:header]), encoding="utf-8-sig", index_col=False, sep=separator)]
                self._refuse_doubled(data[:header], separator)
            data = data[:header] + separator.encode() * (len(names) - 1) + b"\n" + data[header:]
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always", pd.errors.ParserWarning)
                frame = pd.read_csv(
                    io.BytesIO(data),
                    sep=separator,
                    dtype=str,
                    na_filter=False,
                    skip_blank_lines=False,
                    index_col=False,
                    nrows=None if limit is None else limit + 1,
                    encoding="utf-8-sig",
                    on_bad_lines="warn" if self.skip_bad else "error",
                    names=list(names),
                    header=0 if header else None,
                )
        except pd.errors.EmptyDataError:
            raise UserError(f"{self.path} has no header row; give a CSV file with column names.") from None
        except pd.errors.ParserError as error:
            raise UserError(self._explained(error)) from None
        except UnicodeDecodeError:
            raise UserError(f"{self.path} is not a text file in UTF-8; give a CSV file.") from None
        skipped = [int(n) - 1 for warning in caught for n in re.findall(r"Skipping line (\d+)", str(warning))]
        return frame.iloc[1:], skipped

    def _refuse_doubled(self, header: bytes, separator: str) -> None:
        """UserError if two columns have one name: pandas would rename the second."""
        cells = [cell.strip() for cell in next(csv.reader([header.decode("utf-8-sig")], delimiter=separator), [])]
        twice = next((cell for cell in cells if cell and cells.count(cell) > 1), None)
        if twice is not None:
            raise UserError(
                f"{self.path} has two columns {printable(repr(twice), SHOWN)}; rename or remove one of them."
            )

    def _explained(self, error: pd.errors.ParserError) -> str:
        match = re.search(r"Expected (\d+) fields in line (\d+), saw (\d+)", str(error))
        if match is None:
            message = re.sub(r"\s+", " ", str(error)).strip()
            return f"{self.path} is not a readable CSV file ({message}); correct it."
        want, row, got = (int(number) for number in match.groups())
        return f"{self.path}, row {row - 1}: {got} fields where {want} belong; correct this row."

    @property
    def columns(self) -> Sequence[str]:
        return list(self._cells)

    def shown(self, column: str, at: int) -> str:
        return printable(repr(self._cells[column].iloc[at]), SHOWN)

    def optional(self, column: str) -> list[Any]:
        return self._cells[column].tolist()

    def text(self, column: str) -> np.ndarray:
        return self._cells[column].to_numpy(object)

    def as_float(self, column: str) -> np.ndarray:
        cells = self._cells[column]
        try:
            return pa.array(cells).cast(pa.float64()).to_numpy(zero_copy_only=False)
        except pa.ArrowInvalid:
            import pandas as pd

            return np.asarray(pd.to_numeric(cells.astype(object), errors="coerce"), np.float64)
