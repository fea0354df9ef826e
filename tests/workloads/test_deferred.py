import ast
from importlib import import_module
from pathlib import Path
from pkgutil import resolve_name

from workloads.deferred import load_all

ROOT = Path(__file__).parents[2]
PACKAGES = ("engines", "harness", "reports", "workloads")
REGISTRY = Path("workloads/registry.py")
"""Its table names modules without the package in front of them."""


def deferred(path: Path) -> list[ast.expr]:
    """The references of a file: the first argument of each call of `Deferred`, as it is written."""
    calls = [node for node in ast.walk(ast.parse(path.read_bytes())) if isinstance(node, ast.Call)]
    return [call.args[0] for call in calls if ast.unparse(call.func) == "Deferred"]


def test_deferred_references_are_plain_strings_that_name_something_and_all_can_be_loaded() -> None:
    files = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    found = {path.relative_to(ROOT): references for path in files if (references := deferred(path))}
    assert len(found) > 10
    for file, references in found.items():
        import_module(".".join(file.with_suffix("").parts).removesuffix(".__init__"))
        if file != REGISTRY:
            for reference in references:
                resolve_name(ast.literal_eval(reference))
    load_all()  # those of the modules imported above, with the registry's
