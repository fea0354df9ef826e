"""What is imported when it is first needed is there, and a search for its name finds it."""

import ast
from importlib import import_module
from pathlib import Path
from pkgutil import resolve_name

from workloads.deferred import load_all

ROOT = Path(__file__).parents[2]
REGISTRY = "workloads/registry.py"
"""Its table names modules without the package in front of them."""


def test_each_reference_is_written_out_and_leads_somewhere() -> None:
    for package in ("engines", "harness", "reports", "workloads"):
        for path in (ROOT / package).rglob("*.py"):
            name = path.relative_to(ROOT).as_posix()
            for node in ast.walk(ast.parse(path.read_bytes())):
                if isinstance(node, ast.Call) and ast.unparse(node.func) == "Deferred":
                    import_module(name.removesuffix(".py").removesuffix("/__init__").replace("/", "."))
                    if name != REGISTRY:
                        resolve_name(ast.literal_eval(node.args[0]))
    load_all()
