"""Imports go one way: reports -> harness -> engines -> workloads; none in a circle; and what is light stays light."""

import ast
import math
import subprocess
import sys
from collections import deque
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import pytest

from harness.records.imports import modules, package_of, parents, read, targets, within

ROOT = Path(__file__).parents[1]
ORDER = ["workloads", "engines", "harness", "reports"]

LAYERS = (
    ("models",),
    ("core",),
    ("devices",),
    ("speaking", "calls", "co_serving", "turn_taking"),
    ("systems",),
    ("endpoint", "stock"),
)
"""The packages of engines: each imports from its own layer and from those before it. The kernel knows no device."""
NOT_KERNEL = tuple(f"engines.{name}" for layer in LAYERS[3:] for name in layer)

# The three below name what is known to be wrong. A test fails when something new is wrong, and when something listed is
# no longer.
KNOWN_CIRCLES: set[tuple[str, ...]] = set()
"""Each by the names of its modules, in order. Empty, and to stay so."""
KNOWN_WAYS_OUT_OF_THE_KERNEL: set[tuple[str, str]] = set()
"""(importer, imported): the import by which something that the kernel reaches leaves it. Empty, and to stay so."""
KNOWN_UPWARDS: set[tuple[str, str]] = set()
"""(importer, imported) against `LAYERS`. Empty, and to stay so."""

Graph = dict[str, set[str]]


@cache
def graph() -> Graph:
    """Module -> what it imports, inside functions and for type checkers too.

    To import from a package is to import its `__init__`, but for the packages that the importer itself stands in: they
    are being imported already when it is.
    """
    known = modules(ROOT, ORDER)
    found = {}
    for name, path in known.items():
        source = read(path.read_bytes())
        direct = targets((*source.imports, *source.typing), package_of(name, path), known)
        around = set(parents(name))
        implied = {parent for target in direct for parent in parents(target)} & known.keys() - around
        found[name] = direct | implied - {name}
    return found


def circles(graph: Graph) -> set[tuple[str, ...]]:
    """The strongly connected components of more than one module, and modules that import themselves."""
    reached = {name: set(ways(graph, name)) for name in graph}
    return {
        tuple(sorted({name} | {other for other in reached[name] if name in reached[other]}))
        for name in graph
        if name in reached[name]
    }


def ways(graph: Graph, start: str) -> dict[str, str]:
    """Everything that `start` reaches by an import or more -> who imports it on a shortest way there."""
    before: dict[str, str] = {}
    waiting = deque([start])
    while waiting:
        name = waiting.popleft()
        for target in sorted(graph[name]):
            if target not in before:
                before[target] = name
                waiting.append(target)
    return before


def way(before: dict[str, str], start: str, end: str) -> str:
    names = [end]
    while names[-1] != start or len(names) == 1:
        names.append(before[names[-1]])
    return " -> ".join(reversed(names))


def round_trip(graph: Graph, circle: tuple[str, ...]) -> str:
    """A shortest way from the circle's first module back to itself, and all who take part."""
    inside = {name: graph[name] & set(circle) for name in circle}
    return f"{way(ways(inside, circle[0]), circle[0], circle[0])}, among {', '.join(circle)}"


def named(edges: set[tuple[str, str]]) -> set[tuple[str, str]]:
    """Those of `edges` that an import names, without the packages around what it names."""
    return edges - {(importer, parent) for importer, target in edges for parent in parents(target)}


def differs(found: Iterable[str], gone: Iterable[object]) -> str:
    new = "".join(f"\n  new: {each}" for each in found)
    return new + "".join(f"\n  mended, so take it off the list: {each}" for each in gone)


def imported(file: Path) -> set[str]:
    tree = ast.parse(file.read_text())
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module}
    return {name.split(".")[0] for name in names}


def sources(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


def test_only_users_import_what_is_for_them():
    inside = [file for package in ORDER for file in sources(package)]
    assert not [file for file in inside if {"rehearsal", "tests"} & imported(file)]


@pytest.mark.parametrize("package", ORDER)
def test_a_package_imports_only_what_stands_below_it(package: str):
    above = set(ORDER[ORDER.index(package) + 1 :])
    wrong = {str(file.relative_to(ROOT)): imported(file) & above for file in sources(package)}
    assert not {file: names for file, names in wrong.items() if names}


def test_imports_make_no_circle():
    found = circles(graph())
    new = [round_trip(graph(), circle) for circle in sorted(found - KNOWN_CIRCLES)]
    assert found == KNOWN_CIRCLES, differs(new, sorted(KNOWN_CIRCLES - found))


def test_the_kernel_reaches_no_system():
    found: dict[tuple[str, str], str] = {}
    for name in graph():
        if within(name, ["engines.core"]):
            before = ways(graph(), name)
            for target, importer in before.items():
                if within(target, NOT_KERNEL) and not within(importer, NOT_KERNEL):
                    found.setdefault((importer, target), way(before, name, target))
    doors = named(set(found))
    new = [found[door] for door in sorted(doors - KNOWN_WAYS_OUT_OF_THE_KERNEL)]
    assert doors == KNOWN_WAYS_OUT_OF_THE_KERNEL, differs(new, sorted(KNOWN_WAYS_OUT_OF_THE_KERNEL - doors))


def test_packages_of_engines_import_only_what_stands_below_them():
    edges = {(importer, imported) for importer, own in graph().items() for imported in own}
    found = named({edge for edge in edges if _layer(edge[0]) < _layer(edge[1])})
    new = [" -> ".join(edge) for edge in sorted(found - KNOWN_UPWARDS)]
    assert found == KNOWN_UPWARDS, differs(new, sorted(KNOWN_UPWARDS - found))


def _layer(module: str) -> float:
    """Of a module in none of the packages NaN, which is neither above nor below."""
    found = [i for i, layer in enumerate(LAYERS) if within(module, [f"engines.{name}" for name in layer])]
    return found[0] if found else math.nan


def test_the_graph_sees_every_kind_of_import(tmp_path: Path):
    files = {
        "workloads/__init__.py": "",
        "workloads/a.py": "def f():\n    from workloads import b\n",
        "workloads/b.py": (
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import workloads.kit.d\n"
        ),
        "workloads/kit/__init__.py": "from . import d\nfrom .. import a\n",
        "workloads/kit/d.py": "from workloads.kit.e import E\n",
        "workloads/kit/e.py": "",
        "workloads/f.py": "from workloads import f\n",
    }
    for file, text in files.items():
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(globals(), "ROOT", tmp_path)
        found = graph.__wrapped__()
    assert found["workloads.kit.d"] == {"workloads.kit.e"}, "its own package is being imported already"
    assert circles(found) == {
        ("workloads.a", "workloads.b", "workloads.kit"),
        ("workloads.f",),
    }
    circle = ("workloads.a", "workloads.b", "workloads.kit")
    assert round_trip(found, circle).startswith(
        "workloads.a -> workloads.b -> workloads.kit -> workloads.a, "
    )


def test_only_the_adapter_imports_vllm():
    users = {
        file.parent.relative_to(ROOT).as_posix()
        for package in ORDER
        for file in sources(package)
        if "vllm" in imported(file)
    }
    assert users == {"engines/core/vllm_adapter", "engines/stock"}


LIGHT = [
    "workloads.registry",
    "workloads.statistics.describe",
    "harness.doctor",
    "harness.null_server.server",
    "harness.live.client.endpoint",
    "harness.live.run.executor",
    "harness.live.run.sockets_device",
    "harness.metrics.summary",
    "engines.core.routing_rules",
    "engines.registry",
    "engines.server",
    "reports.pages.html",
    "reports.cli",
    "rehearsal",
]
IN_TURN = """
import importlib, sys
for module in sys.argv[1:]:
    importlib.import_module(module)
    heavy = {"vllm", "torch"} & sys.modules.keys()
    assert not heavy, f"{module} loads {heavy}"
"""


def test_what_needs_no_engine_loads_none():
    """All of it in one process, and so each of it."""
    done = subprocess.run([sys.executable, "-c", IN_TURN, *LIGHT], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
