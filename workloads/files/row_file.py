"""Rows of public data: a bad row is reported by file, row and column, or skipped and counted.

Rows are counted as in the file. A loader asks for columns, which checks them; afterwards `good` says which rows
passed every check and `notes` what happened to the others, so that no row is lost in silence.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from workloads.errors import UserError, existing_file, printable

if TYPE_CHECKING:
    import pandas as pd

TOO_MANY = "more fields than names of columns"
SHOWN = 60
"""Characters of a value that a message repeats."""
MAX_TOKENS = 10_000_000  # no model reads as much at once, so that a longer request is an error of the file
MAX_S = 1e10  # three hundred years, or a time since 1970 in s


_UTC = r" ?(?:UTC|GMT|Z)$"


def since_1970(dates: pd.Series) -> np.ndarray:
    """Return dates as s since 1970, NaN for missing ones."""
    at_us = dates.dt.tz_localize(None).to_numpy("datetime64[us]")
    return np.where(np.isnat(at_us), np.nan, at_us.astype(np.int64) / 1e6)


class RowFile(ABC):
    """Columns of a file as checked arrays of shape (rows,); `skip_bad` goes on past bad rows."""

    word, rows = "row", "rows"

    def __init__(self, path: str | Path, skip_bad: bool) -> None:
        self.path = existing_file(path)
        self.skip_bad = skip_bad
        self.numbers_of_rows = np.zeros(0, np.int64)
        self.good = np.zeros(0, bool)
        self.skipped: Counter[str] = Counter()
        self.used: set[str] = set()

    def _holds(self, numbers_of_rows: np.ndarray) -> None:
        """Set the rows and their places in the file; called by the reader."""
        self.numbers_of_rows = numbers_of_rows
        self.good = np.ones(len(numbers_of_rows), bool)

    def __len__(self) -> int:
        return len(self.good)

    @property
    @abstractmethod
    def columns(self) -> Sequence[str]:
        """Names of the columns that the file has."""

    @abstractmethod
    def shown(self, column: str, at: int) -> str:
        """The value of a column in row number `at` of the array, as a message shows it."""

    @abstractmethod
    def as_float(self, column: str) -> np.ndarray:
        """Return a column as float64, NaN for anything that is not a number."""

    @abstractmethod
    def optional(self, column: str) -> list[Any]:
        """Return a column as it is, None (in CSV "") where it is missing."""

    def text(self, column: str) -> np.ndarray:
        """Return a column as text, stripped, object array of shape (rows,); "" where it is missing."""
        texts = ["" if value is None else str(value).strip() for value in self.optional(column)]
        return np.array(texts, object)

    def dates(self, column: str) -> np.ndarray:
        """Return a column of dates and times of ISO 8601 as s since 1970, UTC where they name no zone; NaN for anything
        else."""
        import pandas as pd  # takes longer than all else that is imported here, and parameters need none

        texts = pd.Series(self.text(column)).str.replace(_UTC, "+00:00", regex=True)
        return since_1970(pd.to_datetime(texts, format="ISO8601", errors="coerce", utc=True))

    def values(self, column: str, kind: type | tuple[type, ...], word: str) -> list[Any]:
        """Return a column of values of a type, described by `word`; None in rows that are skipped."""
        values = self.optional(column)
        self.refuse(np.array([not isinstance(value, kind) for value in values]), column, f"is not {word}")
        return [value if good else None for value, good in zip(values, self.good, strict=True)]

    def find(self, names: Sequence[str]) -> str | None:
        """The first of these column names that the file has, or None."""
        column = next((name for name in names if name in self.columns), None)
        if column is not None:
            self.used.add(column)
        return column

    def unused(self, harmless: Sequence[str] = ()) -> list[str]:
        """Return the columns that the loader did not ask for, except columns without information about a request."""
        return [name for name in self.columns if name and name not in self.used and name not in harmless]

    def require(self, names: Sequence[str]) -> str:
        """Finds as `find` does; raises UserError with the names found when the file has none of them."""
        column = self.find(names)
        if column is None:
            wanted = " or ".join(repr(name) for name in names)
            present = printable(", ".join(self.columns))
            raise UserError(f"{self.path} has no column {wanted}; rename one of its columns ({present}).")
        return column

    def numbers(self, column: str, without: np.ndarray | None = None) -> np.ndarray:
        """A column as float64, all finite and not negative; 0 in rows that are skipped, and in those of the mask
        `without`, which may lack it."""
        values = self.as_float(column)
        if without is not None:
            values = np.where(without, 0.0, values)
        self.refuse(np.isnan(values), column, "is not a number")
        self.refuse(np.isinf(values), column, "is not finite")
        self.refuse(values < 0, column, "is negative")
        return np.where(np.isfinite(values) & (values >= 0), values, 0.0)

    def times(self, column: str, unit_s: float = 1.0, without: np.ndarray | None = None) -> np.ndarray:
        """A column of times or durations in units of `unit_s`, as s, float64; `without` as in `numbers`."""
        values = self.numbers(column, without) * unit_s
        self.refuse(values > MAX_S, column, "is too large for a time in s")
        return np.minimum(values, MAX_S)

    def integers(self, column: str) -> np.ndarray:
        """A column of whole numbers >= 0 as int64, such as ids; "12.0" is whole."""
        values = self.numbers(column)
        self.refuse(values != np.floor(values), column, "is not a whole number")
        self.refuse(values > 2**53, column, "is too large for a whole number")
        return np.minimum(values, 2**53).astype(np.int64)

    def counts(self, column: str) -> np.ndarray:
        """A column of numbers of tokens, int64."""
        values = self.integers(column)
        self.refuse(values > MAX_TOKENS, column, "is too large for a number of tokens")
        return np.minimum(values, MAX_TOKENS)

    def refuse(self, bad: np.ndarray, column: str, why: str) -> None:
        """UserError about the first row marked in `bad`, shape (rows,); with `skip_bad` they are skipped.

        column: where the fault is; "" when it is the row as a whole.
        """
        bad = bad & self.good
        if not bad.any():
            return
        if not self.skip_bad:
            at = int(np.argmax(bad))
            place = f", column {column!r}" if column else ""
            where = f"{self.path}, {self.word} {self.numbers_of_rows[at]}{place}"
            raise UserError(f"{where}: {self.shown(column, at)} {why}; correct or remove this {self.word}.")
        self.skipped[f"{column!r} {why}" if column else why] += int(bad.sum())
        self.good &= ~bad

    def notes(self) -> list[str]:
        """Number of skipped rows, for each kind of fault."""
        total = len(self) + self.skipped[TOO_MANY]
        return [f"{n} of {total} {self.rows} skipped: {kind}" for kind, n in sorted(self.skipped.items())]

    def nothing_left(self) -> UserError:
        """Return the error for a file in which no row passed the checks."""
        kinds = "; ".join(self.notes())
        return UserError(f"{self.path}: no good {self.word} is left ({kinds}); give a file with better ones.")
