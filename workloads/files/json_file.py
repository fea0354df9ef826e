"""A JSON-lines file, or one JSON document that is a list, of other people's data as checked columns."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from workloads.errors import UserError, existing_file, printable
from workloads.files.row_file import SHOWN, RowFile


def read_text(path: Path) -> str:
    """A whole text file in UTF-8; UserError when it is none."""
    try:
        return path.read_text("utf-8-sig")
    except UnicodeDecodeError:
        raise UserError(f"{path} is not a text file in UTF-8; give a text file.") from None
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}; give a readable file.") from None


def parse(text: str) -> Any:
    """The JSON value in `text`; ValueError when there is none."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def read_document(path: str | Path) -> Any:
    """One JSON value that fills a file; UserError with the place of the first fault."""
    path = existing_file(path)
    try:
        return parse(read_text(path))
    except ValueError as error:
        raise UserError(f"{path} is not a JSON file ({error}); correct it.") from None


class JsonFile(RowFile):
    """Objects of a JSON-lines file, one a line, or of a JSON list; `flatten` may open its entries."""

    def __init__(
        self,
        path: str | Path,
        limit: int | None = None,
        skip_bad: bool = False,
        flatten: Callable[[list[Any]], list[Any]] = list,
    ) -> None:
        """Read the first `limit` objects (None: all)."""
        super().__init__(path, skip_bad)
        text = read_text(self.path)
        is_list = text.lstrip().startswith("[")
        self.word, self.rows = ("entry", "entries") if is_list else ("line", "lines")
        if is_list:
            values = flatten(read_document(self.path))[:limit]
            numbers = range(1, len(values) + 1)
        else:
            # Not splitlines(), which also splits at characters that JSON allows within a string.
            lines = [(n, line) for n, line in enumerate(text.split("\n"), 1) if line.strip()][:limit]
            numbers, values = [n for n, _ in lines], [_value(line) for _, line in lines]
        if not values:
            raise UserError(f"{self.path} has nothing in it; give a file with at least one {self.word}.")
        self._values = values
        self._holds(np.fromiter(numbers, np.int64, len(values)))
        self.refuse(np.array([not isinstance(value, dict) for value in values]), "", "is not a JSON object")
        self._objects = [value if isinstance(value, dict) else {} for value in values]
        self._columns = list(dict.fromkeys(name for item in self._objects for name in item))

    @property
    def columns(self) -> Sequence[str]:
        return self._columns

    def shown(self, column: str, at: int) -> str:
        value = self._objects[at].get(column) if column else self._values[at]
        return printable(value if isinstance(value, _Unreadable) else repr(value), SHOWN)

    def values(self, column: str, kind: type | tuple[type, ...], word: str) -> list[Any]:
        """A column of values of a type, described by `word`; None in rows that are skipped."""
        values = [item.get(column) for item in self._objects]
        self.refuse(np.array([not isinstance(value, kind) for value in values]), column, f"is not {word}")
        return [value if good else None for value, good in zip(values, self.good, strict=True)]

    def optional(self, column: str) -> list[Any]:
        """A column as it is, None where it is missing."""
        return [item.get(column) for item in self._objects]

    def _as_float(self, column: str) -> np.ndarray:
        return np.array([_number(item.get(column)) for item in self._objects], np.float64)


class _Unreadable(str):
    """A line that is not JSON."""


def _value(line: str) -> Any:
    try:
        return parse(line)
    except ValueError:
        return _Unreadable(repr(line.strip()))


def _number(value: Any) -> float:
    """A JSON number, or a number in quotes, as float; NaN for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | str) or "_" in str(value):
        return np.nan
    try:
        return float(value)
    except OverflowError:
        return np.inf
    except ValueError:
        return np.nan
