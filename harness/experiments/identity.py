"""The program's part of a point's id: the folders whose code and data can change the log of that kind of point.

A changed program replays again instead of resuming logs of its predecessor. Too much replays again, too little resumes
stale logs, so a folder counts as a whole. What a workload makes is in the id by the hash of the trace. Metrics are made
from the log when they are read (`harness.records.measured`), so their code counts for no id.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import Any

import yaml

from harness.experiments.provenance import DECIDING, ROOT, packages
from workloads.deferred import Deferred
from workloads.devices import DEVICES, LIVE, REPLAYING, SOCKET_DEVICES
from workloads.plugins import entry_points

PACKAGES = ("workloads", "engines", "harness")
"""`reports` is left out: it only shows numbers."""
ALWAYS = (
    *(f"harness/{name}" for name in ("client", "clocks", "events", "kinds", "request_tables")),
    *(f"workloads/{name}" for name in ("columns", "distributions", "transforms")),
)
"""Folders that count for every point, with the files that stand in `workloads` itself, but for `NAMING`."""
SERVERS = (
    *(f"engines/{name}" for name in ("core", "devices", "models", "deployments")),
    *(f"engines/{name}" for name in ("turns", "frames", "co_serving", "turn_taking")),
    "harness/replays/kinds",
    "harness/replays/worker/replay.py",
)
"""Folders and files that count as well for every device but `live`, with the files that stand in `engines` itself, but
for `NAMING`."""
NAMING = (
    "engines/registry.py",
    *(f"workloads/{name}.py" for name in ("atomic_file", "bounds", "errors", "optional", "plugins", "registry")),
)
"""Files that name things, or refuse them: a point's modules are in its hash by their own names."""
SOUND = ("workloads",)
"""Folders that count as well where a model or a server is given real sound: on every device that is no replay."""
CALLS = ("harness/live",)
"""Folders that count as well where clients call over sockets."""
SOCKETS = ("harness/serving", "engines/endpoint", "engines/stock")
"""Folders that count as well where they call a server that starts for the point."""
DATA = ("rehearsal.models", "rehearsal.deployments", "rehearsal.gpus")
"""Entry points of folders with facts, which count for every device but `live`."""
DIALECTS = "rehearsal.dialects"
"""Entry points of packages with protocols, which count as whole packages for device `live`."""
METRICS = (
    *(f"harness/{name}" for name in ("kinds", "metrics", "request_tables")),
    "harness/records/measured.py",
    "workloads/columns",
)
"""Folders and files that make metrics of a log."""


@cache
def code_hash(device: str, roots: tuple[str, ...], root: Path = ROOT) -> str:
    """Return the SHA-256 over everything that can change the result of a point on `device`, with the versions of vLLM
    and NumPy.

    `roots`: the modules that define its system and its workload, see `roots_of`. Comments, docstrings, messages,
    descriptions, imports for type checkers and layout change no hash. ValueError for an unknown device or a root
    without source.
    """
    if device not in DEVICES:
        raise ValueError(f"unknown device {device!r}")
    places = ALWAYS + (() if device in REPLAYING else SOUND) + (CALLS if device in SOCKET_DEVICES else ())
    if device != LIVE:
        places += SERVERS + (SOCKETS if device in SOCKET_DEVICES else ())
    files = {path: root for place in places for path in _files(root / place)}
    tops = ("workloads",) if device == LIVE else ("engines", "workloads")
    files |= {path: root for package in tops for path in (root / package).glob("*.py")}
    for name in NAMING:
        files.pop(root / name, None)
    dialects = entry_points(group=DIALECTS) if device == LIVE else []
    for name in (*roots, *(entry.module for entry in dialects)):
        files |= _of_root(name, root)
    facts = [] if device == LIVE else [entry for group in DATA for entry in entry_points(group=group)]
    for entry in facts:
        files |= _of_root(entry.module, root, whole=False)
    return _sum(files, packages(DECIDING))


def _sum(files: Mapping[Path, Path], versions: Mapping[str, str]) -> str:
    """Return the SHA-256 over files, each with the folder that its name is relative to, and versions of packages."""
    digest = hashlib.sha256(repr(versions).encode())
    for name, path in sorted((path.relative_to(base).as_posix(), path) for path, base in files.items()):
        digest.update(f"{name} {_digest(path, path.stat().st_mtime_ns)}\n".encode())
    return digest.hexdigest()


@cache
def metrics_hash(root: Path = ROOT) -> str:
    """Return the SHA-256 over everything that makes metrics of a log, with the versions of NumPy and pandas."""
    files = {path: root for name in METRICS for path in _files(root / name)}
    for group in ("rehearsal.kinds", "rehearsal.metrics"):
        for entry in entry_points(group=group):
            files |= _of_root(entry.module, root)
    return _sum(files, packages(("numpy", "pandas")))


def roots_of(*specs: Any) -> tuple[str, ...]:
    """Return the modules that define `specs`, such as `System.code` gives, and the values of their fields."""
    modules = set()
    for spec in specs:
        for value in (type(spec), *vars(spec).values()):
            while isinstance(value, partial):
                value = value.func
            module = value.module if isinstance(value, Deferred) else getattr(value, "__module__", None)
            modules.add(module or type(value).__module__)
    return tuple(sorted(name for name in modules if name.partition(".")[0] not in sys.stdlib_module_names))


def _of_root(name: str, root: Path, whole: bool = True) -> dict[Path, Path]:
    """Return file -> the folder to which its name in the hash is relative: of a system its folder, else of ours the
    module. Of another package it is the module's own folder, or the `whole` package where nothing says what else its
    entry needs, but for cards and pages."""
    parts, base, places = name.split("."), root, list[Path]()
    if parts[0] in PACKAGES:
        system = parts[:2] == ["engines", "systems"]
        at = root.joinpath(*(parts[:3] if system else parts))
        places = [at if system else at / "__init__.py", at.with_suffix(".py")]
    elif (package := importlib.util.find_spec(parts[0])) and (module := importlib.util.find_spec(name)):
        spec = package if whole else module
        places = [*map(Path, spec.submodule_search_locations or [spec.origin or ""])]
        base = places[0].parent
    paths = [path for place in places for path in _files(place) if parts[0] in PACKAGES or not _shows(path)]
    if not any(path.is_file() for path in paths):
        raise ValueError(f"{name} has no source, so nothing tells when it changes")
    return {path: base for path in paths if path.is_file()}


def _shows(path: Path) -> bool:
    """Return whether a file of another package only asks for points or shows them: a card, a page or its values."""
    if path.suffix == ".py":
        return re.search(rb"^EXPERIMENTS\b", path.read_bytes(), re.MULTILINE) is not None
    return path.suffix == ".md" or (path.suffix == ".json" and path.with_suffix(".md").exists())


def _files(place: Path) -> Iterable[Path]:
    return _below(place) if place.is_dir() else [place]


def _below(folder: Path) -> Iterator[Path]:
    """Yield every file below `folder`, except hidden ones and compiled Python."""
    for path in folder.rglob("*"):
        hidden = any(part[0] == "." for part in path.relative_to(folder).parts)
        if path.suffix != ".pyc" and not hidden and path.is_file():
            yield path


def running(source: bytes) -> str:
    """Return what `ast.dump` writes of a module without what no log can hold: strings that stand alone, blocks for type
    checkers, the text of errors and warnings, and descriptions of fields. One pass: every command that expands points
    waits for it."""
    parts: list[str] = []
    _write(ast.parse(source), parts)
    return "".join(parts)


def _write(value: Any, parts: list[str], message: bool = False) -> None:
    """`message`: within an error or a warning. Text with a blank is left out there: a single word may be a name."""
    if isinstance(value, ast.AST):
        message = message or isinstance(value, ast.Raise) or _warns(value)
        before = f"{type(value).__name__}("
        for name, optional in _fields(type(value)):
            child = getattr(value, name)
            if child is not None or not optional:
                parts.append(f"{before}{name}=")
                in_message = message or (name == "msg" and isinstance(value, ast.Assert))
                _write([child] if isinstance(child, ast.Constant) else child, parts, in_message)
                before = ", "
        parts.append(f"{before})" if before[-1] == "(" else ")")
    elif isinstance(value, list):
        before = "["
        for each in value:
            if not (_never_runs(each) or (message and _is_text(each))):
                parts.append(before)
                _write(each, parts, message)
                before = ", "
        parts.append("[]" if before == "[" else "]")
    else:
        parts.append(repr(value))


@cache
def _fields(kind: type[ast.AST]) -> tuple[tuple[str, bool], ...]:
    """Return the fields of a kind of node, each with whether it is left out where it is None."""
    return tuple((name, getattr(kind, name, ...) is None) for name in kind._fields)


def _never_runs(node: Any) -> bool:
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant)
    if isinstance(node, ast.keyword):
        return node.arg == "description" and isinstance(node.value, ast.Constant | ast.JoinedStr)
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def _is_text(node: Any) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value


def _warns(node: ast.AST) -> bool:
    """Return whether it is a call of a logger's method, such as `_log.warning(...)`."""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id in ("_log", "logger", "logging", "warnings")
    )


@cache
def _digest(path: Path, mtime_ns: int) -> str:
    """Return the SHA-256 of a file that has not changed since `mtime_ns`: of Python what runs, of YAML and JSON the
    values. A file that cannot be parsed counts by its bytes: it is refused where it is used."""
    content = path.read_bytes()
    with suppress(SyntaxError, ValueError, yaml.YAMLError):
        if path.suffix == ".py":
            content = running(content).encode()
        elif path.suffix in (".yaml", ".json"):
            read = json.loads if path.suffix == ".json" else partial(yaml.load, Loader=yaml.CSafeLoader)
            content = repr(read(content)).encode()
    return hashlib.sha256(content).hexdigest()
