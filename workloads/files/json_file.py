"""A JSON-lines file, or one JSON document that is a list, of other people's data as checked columns."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from workloads.errors import UserError, existing_file, printable
from workloads.files.packed import read_packed
from workloads.files.row_file import SHOWN, RowFile

HOLDERS = ("data", "requests", "rows", "records", "items", "entries")
"""Names under which an object has the list of what the file is about. [chosen]"""


def read_text(path: Path) -> str:
    """A whole text file in UTF-8, unpacked; UserError when it is none."""
    try:
        return read_packed(path).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UserError(f"{path} is not a text file in UTF-8; give a text file.") from None


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
    """Objects of a JSON-lines file, one a line, or of a JSON list, which may be in an object under one of `HOLDERS`.
    `flatten` may open the entries of a list; with `inner` the fields of an object in an object are columns, too, as
    `outer.inner`."""

    def __init__(
        self,
        path: str | Path,
        limit: int | None = None,
        skip_bad: bool = False,
        flatten: Callable[[list[Any]], list[Any]] = list,
        inner: bool = False,
    ) -> None:
        """Read the first `limit` objects (None: all)."""
        super().__init__(path, skip_bad)
        text = read_text(self.path)
        entries = read_document(self.path) if text.lstrip().startswith("[") else _entries(text)
        self.word, self.rows = ("line", "lines") if entries is None else ("entry", "entries")
        if entries is not None:
            values = flatten(entries)[:limit]
            numbers = range(1, len(values) + 1)
        else:
            # Not splitlines(), which also splits at characters that JSON allows within a string.
            lines = [(n, line) for n, line in enumerate(text.split("\n"), 1) if line.strip()][:limit]
            numbers, values = [n for n, _ in lines], [_value(line) for _, line in lines]
        del text
        if not values:
            raise UserError(f"{self.path} has nothing in it; give a file with at least one {self.word}.")
        self._values = values
        self._holds(np.fromiter(numbers, np.int64, len(values)))
        self.refuse(np.array([not isinstance(value, dict) for value in values]), "", "is not a JSON object")
        self._objects = [value if isinstance(value, dict) else {} for value in values]
        if inner:
            self._objects = [_with_inner(item) for item in self._objects]
        self._columns = list(dict.fromkeys(name for item in self._objects for name in item))

    @property
    def columns(self) -> Sequence[str]:
        return self._columns

    def shown(self, column: str, at: int) -> str:
        value = self._objects[at].get(column) if column else self._values[at]
        return printable(value if isinstance(value, _Unreadable) else repr(value), SHOWN)

    def optional(self, column: str) -> list[Any]:
        return [item.get(column) for item in self._objects]

    def as_float(self, column: str) -> np.ndarray:
        return np.array([_number(item.get(column)) for item in self._objects], np.float64)


def _entries(text: str) -> list[Any] | None:
    """Return the entries of a file that is one object: those under one of `HOLDERS`, or itself where it takes several
    lines; None for JSON lines."""
    first, _, rest = text.strip().partition("\n")
    if rest and not isinstance(_value(first), _Unreadable):
        return None
    value = _value(text)
    if not isinstance(value, dict):
        return None
    held = next((value[name] for name in HOLDERS if isinstance(value.get(name), list)), None)
    return held or ([value] if rest else None)


def _with_inner(item: dict[str, Any]) -> dict[str, Any]:
    if not any(isinstance(value, dict) for value in item.values()):
        return item
    inner = {
        f"{name}.{key}": each for name, value in item.items() if isinstance(value, dict) for key, each in value.items()
    }
    return {name: value for name, value in item.items() if not isinstance(value, dict)} | inner


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
