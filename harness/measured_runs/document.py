"""A JSON or YAML document of a tool, gzip or not, and values in it by name."""

import math
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from workloads.errors import UserError, existing_file
from workloads.files import yaml_file
from workloads.files.json_file import parse, read_text
from workloads.files.packed import open_packed


def read_json(path: str | Path) -> Any:
    """Read a JSON file. UserError about a file that is not JSON."""
    path = existing_file(path)
    try:
        return parse(_unpacked(path) if path.suffix == ".gz" else read_text(path))
    except ValueError as error:
        raise UserError(f"{path} is not a JSON file ({error}); give it as the tool wrote it.") from None


def read_lines(path: str | Path) -> Iterator[tuple[str, Any]]:
    """Yield the place and the value of each line of a JSON-lines file that is not empty. UserError names a broken
    line."""
    path = existing_file(path)
    for at, line in enumerate(read_text(path).split("\n"), 1):
        if line.strip():
            where = f"{path}, line {at},"
            try:
                value = parse(line)
            except ValueError as error:
                raise UserError(f"{where} is not JSON ({error}); correct the line or take it out.") from None
            yield where, value


def _unpacked(path: Path) -> str:
    try:
        with open_packed(path) as file:
            return file.read().decode("utf-8-sig")
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"{path} cannot be unpacked ({error}); give a whole gzip file.") from None


def read_yaml(path: str | Path) -> dict[str, Any]:
    """Read names and values. UserError about a file that is not YAML or holds something else."""
    data = yaml_file.read_yaml(path)
    if not isinstance(data, dict):
        raise UserError(f"{path} is not a list of names and values; give the file that the run was made with.")
    return data


def get(value: Any, *names: str) -> Any:
    """Return the value under the first of `names` that exists ("a.b": as it is, or b in a) and is not null; else
    None."""
    for name in names:
        node = value
        for step in (name,) if isinstance(value, dict) and name in value else name.split("."):
            node = node.get(step) if isinstance(node, dict) else None
        if node is not None:
            return node
    return None


def number(value: Any, where: str, *names: str) -> float | None:
    """Return `get` as a finite number, None where it is missing. UserError that begins with `where` for another
    value."""
    entry = get(value, *names)
    if entry is None:
        return None
    try:
        result = float(entry)
    except (TypeError, ValueError):
        result = math.nan
    if isinstance(entry, bool) or not math.isfinite(result):
        raise UserError(f"{where}: {names[0]!r} should be a number, got {entry!r}.")
    return result


def needed(value: Any, where: str, *names: str) -> float:
    """Return `number`. UserError where it is missing."""
    result = number(value, where, *names)
    if result is None:
        raise UserError(f"{where}: {' or '.join(repr(name) for name in names)} is missing; give a file that has it.")
    return result
