"""Nested JSON objects, read one by one; errors name the place."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn

from workloads.errors import UserError, existing_file, printable
from workloads.files.json_file import parse
from workloads.files.packed import open_packed
from workloads.files.row_file import MAX_TOKENS, SHOWN


@dataclass(frozen=True, slots=True)
class Record:
    """One object and its place. Each method returns a checked field; UserError names field, value and fix."""

    place: str
    fields: dict[str, Any]

    def number(self, name: str, default: float | None = None) -> float:
        """Return a number of 0 or more; null gives the default, if there is one."""
        value = self.fields.get(name)
        if value is None and default is not None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e15:
            self.refuse(name, "a number of 0 or more")
        return float(value)

    def tokens(self, name: str, default: int | None = None) -> int:
        value = self.number(name, default)
        if value != int(value) or value > MAX_TOKENS:
            self.refuse(name, f"a whole number of tokens up to {MAX_TOKENS:,}")
        return int(value)

    def text(self, name: str, default: str | None = None) -> str:
        """Text that is not empty."""
        value = self.fields.get(name)
        if value is None and default is not None:
            return default
        if not isinstance(value, str) or not value:
            self.refuse(name, "text")
        return value

    def date_s(self, name: str) -> float:
        """A date and time of ISO 8601, s since 1970; without a zone it is UTC."""
        try:
            at = datetime.fromisoformat(self.text(name))
        except ValueError:
            self.refuse(name, "a date and time such as 2026-06-01T05:40:20.151Z")
        return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()

    def records(self, name: str) -> list[Record]:
        """The objects of a list; none where it is missing."""
        values = self.fields.get(name)
        if values is None:
            return []
        if not isinstance(values, list):
            self.refuse(name, "a list")
        return [record(value, f"{self.place}, {name}[{i}]") for i, value in enumerate(values)]

    def refuse(self, name: str, wanted: str) -> NoReturn:
        """UserError: the field has a wrong value."""
        shown = (
            f"is {printable(repr(self.fields[name]), SHOWN)}, not {wanted}"
            if name in self.fields
            else f"is missing; {wanted}"
        )
        raise UserError(f"{self.place}: {name} {shown}; correct it, or skip_bad=true leaves its job out.")


def record(value: Any, place: str) -> Record:
    """UserError if it is not an object."""
    if not isinstance(value, dict):
        raise UserError(f"{place}: {printable(repr(value), SHOWN)} is not a JSON object; correct or remove it.")
    return Record(place, value)


def read_records(path: Path) -> Iterator[Record]:
    """The objects of a file of JSON lines or of one JSON value, an object or a list; of all *.json of a folder. May be
    packed."""
    if os.path.isdir(path):  # which takes any name, also one that is too long
        files = sorted(path.glob("*.json"))
        if not files:
            raise UserError(f"{path} holds no .json file; give a file, or a folder of them.")
        for file in files:
            yield from read_records(file)
        return
    first, rest = None, _lines(existing_file(path))
    number, line = next(rest, (1, ""))
    try:
        first = parse(line)
    except ValueError as error:
        try:
            first = parse("".join([line, *(more for _, more in rest)]))
        except ValueError:
            raise _not_json(path, number, error) from None
    if isinstance(first, list):
        for index, item in enumerate(first):
            yield record(item, f"{path}, entry {index + 1}")
        return
    yield record(first, f"{path}, line {number}")
    for number, line in rest:
        try:
            value = parse(line)
        except ValueError as error:
            raise _not_json(path, number, error) from None
        yield record(value, f"{path}, line {number}")


def _not_json(path: Path, number: int, error: ValueError) -> UserError:
    return UserError(f"{path}, line {number} is not JSON ({error}); correct or remove this line.")


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield (line number, line) for each line that is not blank, while the file is read: a public trace is larger than
    the trace made of it. UserError for a file that cannot be read."""
    try:
        with open_packed(path) as file:
            for number, line in enumerate(io.TextIOWrapper(file, encoding="utf-8-sig"), 1):
                if line.strip():
                    yield number, line
    except UnicodeDecodeError:
        raise UserError(f"{path} is not a text file in UTF-8; give a text file.") from None
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error}; give a readable file.") from None
