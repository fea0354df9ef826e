"""Imports go one way, reports -> harness -> engines -> workloads, in no circle, and light modules load no engine."""

import ast
import math
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import networkx as nx
import pytest

from tests.import_graph import imports, modules, package_of, parents, targets, within

ROOT = Path(__file__).parents[1]
ORDER = ["workloads", "engines", "harness", "reports"]

LAYERS = (
    ("models",),
    ("core",),
    ("devices",),
    ("turns", "frames", "co_serving", "turn_taking"),
    ("systems",),
    ("endpoint", "stock"),
)
"""The packages of engines: each imports from its own layer and from those before it. The kernel knows no device."""
SIDES = {
    "harness.live": ("engines", "harness.replays", "reports"),
    "harness.replays": ("harness.live", "reports"),
    "reports.live": ("engines", "harness.replays", "reports.replays"),
    "reports.replays": ("harness.live", "reports.live"),
}
"""Folder -> what it never imports. Live runs know no engine, and neither side the other."""
ABOVE_BOTH = ("by_device", "calibration", "doctor", "measured_runs", "serving")
"""Parts of harness that need both sides. Nothing else of harness imports them, nor a side."""
NOT_KERNEL = tuple(f"engines.{name}" for layer in LAYERS[3:] for name in layer)


@cache
def graph() -> nx.DiGraph:
    """Return which module imports which, inside functions and for type checkers too. An import from a package imports
    its `__init__`, except for the packages around the importer, which are being imported already."""
    known = modules(ROOT, ORDER)
    found = nx.DiGraph()
    found.add_nodes_from(known)
    for name, path in known.items():
        direct = targets(imports(path), package_of(name, path), known)
        around = set(parents(name))
        implied = {parent for target in direct for parent in parents(target)} & known.keys() - around
        found.add_edges_from((name, target) for target in direct | implied - {name})
    return found


def circles(graph: nx.DiGraph) -> list[list[str]]:
    """Return a way round each circle."""
    parts = [graph.subgraph(nodes) for nodes in nx.strongly_connected_components(graph)]
    return [[name for name, _ in nx.find_cycle(part)] for part in parts if part.edges]


def named(edges: set[tuple[str, str]]) -> set[tuple[str, str]]:
    """Return the edges without those to a package around a module that the importer names."""
    return edges - {(importer, parent) for importer, target in edges for parent in parents(target)}


@cache
def imported(file: Path) -> set[str]:
    """Return the top-level packages that a file imports."""
    statements = imports(file)
    names = {alias.name for each in statements if isinstance(each, ast.Import) for alias in each.names}
    names |= {each.module for each in statements if isinstance(each, ast.ImportFrom) and each.module}
    return {name.split(".")[0] for name in names}


def sources(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


def test_the_product_imports_neither_its_tests_nor_its_python_api():
    inside = [file for package in ORDER for file in sources(package)]
    assert not [file for file in inside if {"rehearsal", "tests"} & imported(file)]


def test_imports_go_one_way():
    """Between the packages, and between the layers of engines."""
    assert not named({edge for edge in graph().edges if upwards(*edge)})


def upwards(importer: str, target: str) -> bool:
    below, above = (ORDER.index(name.split(".")[0]) for name in (importer, target))
    return below < above or layer(importer) < layer(target)


def layer(module: str) -> float:
    """Return the number of a module's layer; NaN, which is neither above nor below, if it is in none."""
    found = [i for i, names in enumerate(LAYERS) if within(module, [f"engines.{name}" for name in names])]
    return found[0] if found else math.nan


def test_replays_and_live_runs_import_nothing_of_each_other():
    shared = {
        name: ("engines", "harness.live", "harness.replays", *(f"harness.{each}" for each in ABOVE_BOTH))
        for name in graph()
        if within(name, ["harness"]) and not within(name, [*SIDES, *(f"harness.{each}" for each in ABOVE_BOTH)])
    }
    sides = {name: not_for for side, not_for in SIDES.items() for name in graph() if within(name, [side])}
    forbidden = {
        (name, target)
        for name, not_for in {**shared, **sides}.items()
        for target in graph()[name]
        if within(target, not_for)
    }
    assert not named(forbidden)


def test_imports_make_no_circle():
    assert not circles(graph())


def test_the_kernel_reaches_no_system():
    kernel = {name for name in graph() if within(name, ["engines.core"])}
    reached = kernel.union(*(nx.descendants(graph(), name) for name in kernel))
    doors = {edge for edge in graph().edges if edge[0] in reached and within(edge[1], NOT_KERNEL)}
    assert not named({edge for edge in doors if not within(edge[0], NOT_KERNEL)})


def test_the_graph_has_imports_in_functions_and_for_type_checkers():
    assert graph().has_edge("reports.cards.source", "harness.records.results"), "imported in a function"
    assert graph().has_edge("workloads.generators.content", "workloads.audio.duplex"), "imported for type checkers"


def test_only_the_adapter_imports_vllm():
    files = [file for package in ORDER for file in sources(package) if "vllm" in imported(file)]
    users = {file.parent.relative_to(ROOT).as_posix() for file in files}
    assert users == {"engines/core/vllm_adapter", "engines/stock", "engines/stock/omni"}


LIGHT = [
    "workloads.registry",
    "workloads.statistics.describe",
    "harness.doctor",
    "harness.live.null_server.null_server",
    "harness.live.run.live_executor",
    "harness.live.run.load_generator",
    "harness.metrics.turns",
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


def test_light_modules_load_no_engine():
    done = subprocess.run([sys.executable, "-c", IN_TURN, *LIGHT], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def git(*arguments: str) -> bytes:
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("not a checkout of git")
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, check=True).stdout


def test_no_file_is_a_symbolic_link():
    """Tools that follow one find its files twice, and Python's zipfile makes none."""
    assert not [line for line in git("ls-files", "-s").splitlines() if line.startswith(b"120000")]


def test_no_process_is_started_in_another_directory():
    """A relative path of the user's would name another file there."""
    found = git("grep", "-nE", r"\bcwd=|chdir\(", "--", *(f"{name}/*.py" for name in ORDER)).decode()
    assert [line.partition(":")[0] for line in found.splitlines()] == ["workloads/audio/obtain.py"]
