"""Imports go one way: reports -> harness -> engines -> workloads; and what is light stays light."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ORDER = ["workloads", "engines", "harness", "reports"]


def imported(file: Path) -> set[str]:
    tree = ast.parse(file.read_text())
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module}
    return {name.split(".")[0] for name in names}


@pytest.mark.parametrize("package", ORDER)
def test_a_package_imports_only_what_stands_below_it(package: str):
    above = set(ORDER[ORDER.index(package) + 1 :])
    wrong = {str(file.relative_to(ROOT)): imported(file) & above for file in (ROOT / package).rglob("*.py")}
    assert not {file: names for file, names in wrong.items() if names}


def test_only_the_adapter_imports_vllm():
    users = {
        file.parent.relative_to(ROOT).as_posix()
        for package in ORDER
        for file in (ROOT / package).rglob("*.py")
        if "vllm" in imported(file)
    }
    assert users == {"engines/core/vllm_adapter", "engines/stock"}


@pytest.mark.parametrize(
    "module",
    [
        "workloads.registry",
        "harness.live.client.endpoint",
        "harness.live.run.executor",
        "harness.live.run.sockets_device",
        "harness.metrics.summary",
        "engines.registry",
        "engines.server",
        "reports.html",
        "reports.cli",
    ],
)
def test_what_needs_no_engine_loads_none(module: str):
    code = f"import sys, {module}; sys.exit(bool({{'vllm', 'torch'}} & sys.modules.keys()))"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0
