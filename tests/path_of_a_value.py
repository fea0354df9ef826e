"""The way of one value through the program: each call from one of its files to another that gets the value."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from reports.cli import main

ROOT = Path(__file__).parents[1]
PACKAGES = ("workloads", "engines", "harness", "reports")
DEEPEST = 4
"""Objects within objects in which the value is looked for."""


def follow(arguments: list[str], value: int) -> list[tuple[str, str]]:
    """Run `rehearse ARGUMENTS` in this process. Return file and function of each call between two files of the product
    with the value among its arguments, in order. A generator that goes on is called again."""
    stops: list[tuple[str, str]] = []
    names = {str(path): path.relative_to(ROOT).as_posix() for each in PACKAGES for path in (ROOT / each).rglob("*.py")}

    def called(frame: Any, event: str, _: Any) -> None:
        caller = frame.f_back.f_code.co_filename if frame.f_back else ""
        file = frame.f_code.co_filename
        between = event == "call" and file in names and caller in names and caller != file
        if between and any(_has(each, value) for each in frame.f_locals.values()):
            stops.append((names[file], frame.f_code.co_name))

    before = sys.argv
    sys.argv = ["rehearse", *arguments]
    sys.setprofile(called)
    try:
        main()
    except SystemExit:
        pass
    finally:
        sys.setprofile(None)
        sys.argv = before
    return stops


def _has(found: Any, value: int, depth: int = 0) -> bool:
    if isinstance(found, str):
        return found == str(value) or found.endswith(f"={value}")
    if isinstance(found, int | float):
        return type(found) is int and found == value
    if depth == DEEPEST:
        return False
    if isinstance(found, Mapping):
        return any(_has(each, value, depth + 1) for each in found.values())
    if isinstance(found, list | tuple | set):
        return any(_has(each, value, depth + 1) for each in found)
    if type(found).__module__.partition(".")[0] in PACKAGES:
        return _has(getattr(found, "__dict__", {}), value, depth + 1)
    return False
