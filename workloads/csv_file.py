"""A CSV file of other people's data, read so that a bad value is reported by file, row and column.

Rows are counted as in the file: the header is row 1.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from workloads.errors import UserError, existing_file


class CsvFile:
    """The cells of a CSV file as text, and checked columns of numbers from them."""

    def __init__(self, path: str | Path, limit: int | None = None) -> None:
        """Read the header and the first `limit` rows (None: all); blank lines are passed over."""
        self.path = existing_file(path)
        frame = self._read(limit)
        cells = {str(name).strip(): frame[name].str.strip().to_numpy(object) for name in frame.columns}
        filled = np.any([values != "" for values in cells.values()], axis=0)
        if not filled.any():
            raise UserError(f"{self.path} has a header but no rows; give a file with at least one request.")
        self._cells = {name: values[filled] for name, values in cells.items()}
        self._rows = np.flatnonzero(filled) + 2

    def _read(self, limit: int | None) -> pd.DataFrame:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error", pd.errors.ParserWarning)
                return pd.read_csv(
                    self.path,
                    dtype=str,
                    na_filter=False,
                    skip_blank_lines=False,
                    index_col=False,
                    nrows=limit,
                    encoding="utf-8-sig",
                )
        except pd.errors.EmptyDataError:
            raise UserError(f"{self.path} has no header row; give a CSV file with column names.") from None
        except pd.errors.ParserWarning:
            raise UserError(
                f"{self.path}, row 2: more fields than the header has names; correct this row."
            ) from None
        except pd.errors.ParserError as error:
            told = re.search(r"Expected (\d+) fields in line (\d+), saw (\d+)", str(error))
            if told is None:
                raise UserError(f"{self.path} is not a readable CSV file ({error}); correct it.") from None
            want, row, got = told.groups()
            raise UserError(
                f"{self.path}, row {row}: {got} fields where the header has {want} names; correct this row."
            ) from None
        except UnicodeDecodeError:
            raise UserError(f"{self.path} is not a text file in UTF-8; give a CSV file.") from None
        except OSError as error:
            raise UserError(f"{self.path} cannot be read: {error}; give a readable file.") from None

    def __len__(self) -> int:
        return len(self._rows)

    def find(self, names: Sequence[str]) -> str | None:
        """The first of these column names that the file has, or None."""
        return next((name for name in names if name in self._cells), None)

    def require(self, names: Sequence[str]) -> str:
        """As `find`; UserError with the names found when the file has none of them."""
        column = self.find(names)
        if column is None:
            wanted = " or ".join(repr(name) for name in names)
            found = ", ".join(self._cells)
            raise UserError(f"{self.path} has no column {wanted}; rename one of its columns ({found}).")
        return column

    def text(self, column: str) -> np.ndarray:
        """The cells of a column, stripped, shape (rows,)."""
        return self._cells[column]

    def numbers(self, column: str) -> np.ndarray:
        """A column as float64, all finite and not negative."""
        values = np.asarray(pd.to_numeric(pd.Series(self._cells[column]), errors="coerce"), np.float64)
        self.refuse(np.isnan(values), column, "is not a number")
        self.refuse(np.isinf(values), column, "is not finite")
        self.refuse(values < 0, column, "is negative")
        return values

    def counts(self, column: str) -> np.ndarray:
        """A column of whole numbers >= 0 as int64; "12.0" is whole."""
        values = self.numbers(column)
        self.refuse(values != np.floor(values), column, "is not a whole number")
        self.refuse(values > 2**31, column, "is too large for a number of tokens")
        return values.astype(np.int64)

    def refuse(self, bad: np.ndarray, column: str, why: str) -> None:
        """UserError about the first row marked in `bad`, shape (rows,)."""
        if bad.any():
            at = int(np.argmax(bad))
            value = self._cells[column][at]
            where = f"{self.path}, row {self._rows[at]}, column {column!r}"
            raise UserError(f"{where}: {value!r} {why}; correct or remove this row.")
