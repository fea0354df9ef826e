"""A trace as JSON lines, for people and other programs: the header, then one turn a line; nothing is lost.

    {"schema_version": 1, "generator": "voice", "params": {...}, "seed": 0, ..., "hash": "..."}
    {"session": 0, "turn": 0, "arrival_s": 0.41, "modality": "audio", "input_tokens": 39, ...}

If you edit a turn, remove `hash` from the header: a file that has one must match it, so that a truncated file is
noticed. Columns that may be None may be left out. Times are kept to whole microseconds.
"""

import json
import re
from collections.abc import Callable
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import Any, NoReturn

import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field

from workloads.atomic_file import write_lines
from workloads.errors import UserError, existing_file, nearest, printable, validate
from workloads.files.packed import read_packed
from workloads.trace import CONTENTS, OWN, SCHEMA, SCHEMA_VERSION, Trace

_LARGEST = CONTENTS - 1
_IN_TURN = re.compile(r"^session (-?\d+) turn (-?\d+): ")


class Header(BaseModel):
    """First line of the file; fields as `workloads.trace.TraceHeader`."""

    model_config = ConfigDict(extra="forbid", strict=True)

    schema_version: int = Field(ge=1, description="version of the columns")
    generator: str = Field("by hand", description="what made the trace")
    params: dict[str, Any] = Field(default_factory=dict, description="parameters of the generator")
    seed: int = Field(0, ge=0, description="seed of the generator")
    streams: list[str] = Field(default_factory=list, description="named random streams")
    notes: list[str] = Field(default_factory=list, description="what a reader must know")
    hash: str | None = Field(None, description="hash of the turns; left out: not checked")


def write(trace: Trace, path: str | Path) -> None:
    """Write the header and one line per turn."""
    fields = trace.written()
    names, columns = [field.name for field in fields], [trace.values(field) for field in fields]
    turns = (dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True))
    write_lines(path, (json.dumps(line, allow_nan=False) for line in chain([asdict(trace.header)], turns)))


def read(path: str | Path) -> Trace:
    """Read a file as `write` leaves it; UserError with the number of the first bad line."""
    path = existing_file(path)
    lines = read_packed(path).removeprefix(b"\xef\xbb\xbf").splitlines()
    header = _header(lines[0] if lines else b"", path)
    columns: dict[str, list[Any]] = {field.name: [] for field in SCHEMA}
    numbers, own = [], list[dict[str, Any]]()
    for number, line in enumerate(lines[1:], 2):
        if line.strip():
            row = _object(line, path, number)
            for name, check in _CHECKS.items():
                columns[name].append(check(row.pop(name, None), path, number))
            own.append({name: _own(name, row.pop(name), path, number) for name in [*row] if name.startswith(OWN)})
            if row:
                name = next(iter(row))
                _refuse(path, number, f"unknown column {name!r}.{nearest(name, SCHEMA.names)}")
            numbers.append(number)
    if not numbers:
        raise UserError(f"{path} has a header but no turns; give a file with at least one turn.")
    columns |= {name: [each.get(name) for each in own] for name in {name for each in own for name in each}}
    try:
        trace = Trace.from_columns(columns, **header.model_dump(exclude={"schema_version", "hash"}))
    except UserError as error:
        where = _IN_TURN.match(str(error))
        pairs = list(zip(columns["session"], columns["turn"], strict=True))
        number = numbers[pairs.index((int(where[1]), int(where[2])))] if where else 1
        _refuse(path, number, str(error))
    if header.hash not in (None, trace.header.hash):
        _refuse(path, 1, "turns are missing or changed since this hash was taken; fix them or remove the hash.")
    return trace


def _own(name: str, value: Any, path: Path, number: int) -> Any:
    if value is not None and type(value) not in (str, int, float):
        _refuse(
            path, number, f"{name} is {printable(json.dumps(value), 40)}, no number and no text; correct this line."
        )
    return value


def _header(line: bytes, path: Path) -> Header:
    fields = _object(line, path, 1)
    if "schema_version" not in fields:
        _refuse(path, 1, 'not the header of a trace; put {"schema_version": 1} before it.')
    version = fields["schema_version"]
    if isinstance(version, int) and version > SCHEMA_VERSION:
        _refuse(path, 1, f"schema version {version} is newer than {SCHEMA_VERSION}; upgrade rehearsal.")
    return validate(Header, fields, f"{path}, line 1")


def _object(line: bytes, path: Path, number: int) -> dict[str, Any]:
    try:
        value = json.loads(line.decode(), parse_constant=_not_json)
    except UnicodeDecodeError:
        _refuse(path, number, "not text in UTF-8; correct this line.")
    except (ValueError, RecursionError):
        _refuse(path, number, "not valid JSON; correct or remove this line.")
    if not isinstance(value, dict):
        _refuse(path, number, "not a JSON object; correct or remove this line.")
    return value


def _not_json(name: str) -> NoReturn:
    raise ValueError(name)


def _check(field: pa.Field) -> Callable[[Any, Path, int], Any]:
    """Return the check of one value of this column; the check returns the value."""
    whole, text = pa.types.is_integer(field.type), field.type == pa.string()
    kinds: tuple[type, ...] = (str,) if text else (int,) if whole else (int, float)
    largest = 2**31 - 1 if field.type == pa.int32() else _LARGEST
    wanted = "text" if text else "a whole number" if whole else "a number"

    def check(value: Any, path: Path, number: int) -> Any:
        if value is None:
            if field.nullable:
                return None
            _refuse(path, number, f"{field.name} is missing; give it a value.")
        if type(value) not in kinds:
            _refuse(
                path, number, f"{field.name} is {printable(json.dumps(value), 40)}, not {wanted}; correct this line."
            )
        if not text and not -largest <= value <= largest:
            _refuse(
                path, number, f"{field.name} is {printable(json.dumps(value), 40)}, out of range; correct this line."
            )
        return value

    return check


_CHECKS = {field.name: _check(field) for field in SCHEMA}


def _refuse(path: Path, number: int, what: str) -> NoReturn:
    raise UserError(f"{path}, line {number}: {what}")
