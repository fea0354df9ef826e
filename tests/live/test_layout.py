"""The live side as it is laid out: no circles of imports, and nothing that is measured imports the selftest."""

import ast
from graphlib import TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[2]
AREA = (
    "engines/endpoint",
    "harness/client",
    "harness/live",
    "harness/null_server",
    "tests/selftest",
    "harness/serving",
)


def imports() -> dict[str, set[str]]:
    """The modules of the area that each imports: anywhere, under `if TYPE_CHECKING` and in functions too."""
    files = {}
    for folder in AREA:
        for file in (ROOT / folder).rglob("*.py"):
            parts = file.relative_to(ROOT).with_suffix("").parts
            files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    found: dict[str, set[str]] = {}
    for name, file in files.items():
        tree = ast.walk(ast.parse(file.read_text()))
        named = [
            {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
            for node in tree
            if isinstance(node, ast.ImportFrom)
        ]
        found[name] = {module for modules in named for module in modules if module in files} - {name}
    return found


def packages(modules: dict[str, set[str]]) -> dict[str, set[str]]:
    def package(module: str) -> str:
        parts = module.split(".")
        return ".".join(parts[: 3 if parts[1] == "live" else 2])

    found: dict[str, set[str]] = {}
    for module, imported in modules.items():
        found.setdefault(package(module), set()).update(map(package, imported))
    return {name: imported - {name} for name, imported in found.items()}


def test_no_module_and_no_package_is_in_a_circle():
    modules = imports()
    assert len(modules) > 60
    assert "harness.live.target" in modules["harness.live.client.endpoint"]
    TopologicalSorter(packages(modules)).prepare()
    # A package's own `__init__` may gather what its modules hold; `from package import module` is no circle.
    TopologicalSorter(
        {name: {m for m in found if not name.startswith(f"{m}.")} for name, found in modules.items()}
    ).prepare()


def test_what_is_measured_knows_nothing_of_the_selftest():
    for module, found in imports().items():
        if not module.startswith("tests.selftest"):
            assert not [other for other in found if other.startswith("tests.selftest")], module
