"""The tables of what the adapter touches of vLLM, in docs/vllm-releases.md, with the releases in which each was seen.

    python -m docs.vllm_names 0.31.0 0.32.0 0.33.0

Found in the text of `engines`, and looked up in the text of vLLM: imports, classes that we derive from, methods of
theirs that we override, private attributes, methods that we replace in objects. A private name that code of ours
defines as well is taken for ours.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from packaging.version import Version

from harness.replays.worker.vllm_release import source

ROOT = Path(__file__).parent.parent
PAGE = Path(__file__).with_name("vllm-releases.md")
KINDS = {
    "import": "Imported",
    "base": "Derived from",
    "method": "Overridden",
    "private": "Private attributes that are read, called or set",
    "replaced": "Methods replaced in objects and classes",
}
_OBJECTS = (
    "v1",
    "distributed",
    "config",
    "multimodal/processing",
    "model_executor/models/registry.py",
    "_custom_ops.py",
)
"""Where, below vLLM's package, what the adapter's objects have is defined."""
NEAR = ("core/vllm_adapter/", "stock/")
"""Where vLLM is imported, and any private name that is not ours is taken for its own."""
_BLOCK = re.compile(r"(<!-- vllm (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)

Touched = dict[tuple[str, str], set[str]]
"""Kind and name -> the files that use it."""


@dataclass
class Vllm:
    """The text of one release, whose package stands in `folder`."""

    folder: Path
    _trees: dict[str, ast.Module | None] = field(default_factory=dict)

    def holds(self, kind: str, name: str) -> bool:
        """Whether it has what is so called."""
        if kind == "private":
            return name in self._defined
        if kind == "replaced":
            return name in self.functions
        return self._has(name) if kind == "import" else self._resolved(name) is not None

    def methods(self, qualified: str) -> dict[str, str]:
        """The methods of a class, by name -> qualified by the class of vLLM's that has it; what it inherits too."""
        found: dict[str, str] = {}
        resolved = self._class(qualified)
        if resolved is None:
            return found
        module, node = resolved
        for base in node.bases:
            found |= self.methods(self._qualified(module, ast.unparse(base)))
        own = (each for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef))
        return found | {each.name: f"{module}.{node.name}.{each.name}" for each in own}

    @cached_property
    def functions(self) -> set[str]:
        """The names of all functions and methods of `_OBJECTS`."""
        return set(re.findall(r"^ *(?:async )?def (\w+)\(", self._text, re.MULTILINE))

    @cached_property
    def _defined(self) -> set[str]:
        """The private names that `_OBJECTS` define: functions, attributes, fields, globals."""
        set_ = re.findall(r"(?:self\.|cls\.|^ *)(_[a-z]\w*)(?:: [^=\n]+)? *=(?!=)", self._text, re.MULTILINE)
        declared = re.findall(r"^ *(_[a-z]\w*): ", self._text, re.MULTILINE)
        return {*set_, *declared, *(name for name in self.functions if name.startswith("_"))}

    @cached_property
    def _text(self) -> str:
        places = [self.folder / each for each in _OBJECTS]
        paths = [path for place in places for path in (place.rglob("*.py") if place.is_dir() else [place])]
        return "\n".join(path.read_text() for path in sorted(paths))

    def _tree(self, module: str) -> ast.Module | None:
        if module not in self._trees:
            place = self.folder.joinpath(*module.split(".")[1:])
            path = next((p for p in (place.with_suffix(".py"), place / "__init__.py") if p.exists()), None)
            self._trees[module] = ast.parse(path.read_bytes()) if path is not None else None
        return self._trees[module]

    def _has(self, name: str) -> bool:
        """A module, or what one binds."""
        module, _, bound = name.rpartition(".")
        if self._tree(name) is not None or self.folder.joinpath(*name.split(".")[1:]).is_dir():
            return True
        tree = self._tree(module) if module else None
        # Some packages import by a table of names.
        lazily = tree is not None and any(
            isinstance(each, ast.Constant) and each.value == bound for each in ast.walk(tree)
        )
        return tree is not None and (lazily or bound in set(_bound(tree)))

    def _resolved(self, name: str) -> str | None:
        """Of a class, or a method of one."""
        if self._class(name) is not None:
            return name
        owner, _, method = name.rpartition(".")
        return self.methods(owner).get(method)

    def _class(self, qualified: str) -> tuple[str, ast.ClassDef] | None:
        """Where the class stands, however many modules hand it on."""
        module, _, name = qualified.rpartition(".")
        tree = self._tree(module) if module.startswith("vllm") else None
        for node in ast.walk(tree) if tree is not None else ():
            if isinstance(node, ast.ClassDef) and node.name == name:
                return module, node
            if isinstance(node, ast.ImportFrom) and node.module and any(a.name == name for a in node.names):
                return self._class(f"{node.module}.{name}")
        return None

    def _qualified(self, module: str, name: str) -> str:
        tree = self._tree(module)
        return _imported(tree).get(name, f"{module}.{name}") if tree is not None else name


def touched(vllm: Vllm, root: Path = ROOT / "engines", package: str = "engines") -> Touched:
    """All that the Python files below `root` touch of vLLM. `package`: by which they import one another."""
    files = {path.relative_to(root).as_posix(): ast.parse(path.read_bytes()) for path in sorted(root.rglob("*.py"))}
    classes = {
        f"{package}.{path.removesuffix('.py').removesuffix('/__init__').replace('/', '.')}.{node.name}": (path, node)
        for path, tree in files.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    }
    imported = {path: _imported(tree) for path, tree in files.items()}
    ours = {name for tree in files.values() for node in ast.walk(tree) for name in _own(node)}
    found: Touched = {}

    def add(kind: str, name: str, path: str) -> None:
        found.setdefault((kind, name), set()).add(path)

    def bases(qualified: str) -> Iterator[str]:
        path, node = classes[qualified]
        for base in map(ast.unparse, node.bases):
            name = imported[path].get(base, f"{qualified.rpartition('.')[0]}.{base}")
            if name.startswith("vllm."):
                yield name
            elif name in classes:
                yield from bases(name)

    for path, tree in files.items():
        for name in (*imported[path].values(), *_computed(tree)):
            if re.match(r"vllm\b", name):
                add("import", name, path)
        near = path.startswith(NEAR)
        functions = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        for node in ast.walk(tree):
            for name in _private(node):
                if name not in ours and (near or vllm.holds("private", name)):
                    add("private", name, path)
            for name in _replaced(node, functions) if near else ():
                if name in vllm.functions:
                    add("replaced", name, path)
    for qualified, (path, node) in classes.items():
        for base in dict.fromkeys(bases(qualified)):
            if imported[path].get(base.rpartition(".")[2]) == base:
                add("base", base, path)
            known = vllm.methods(base)
            for each in node.body:
                if isinstance(each, ast.FunctionDef) and each.name in known:
                    add("method", known[each.name], path)
    return found


def _imported(tree: ast.Module) -> dict[str, str]:
    """What each name that is imported stands for."""
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found |= {each.asname or each.name: f"{node.module}.{each.name}" for each in node.names}
        elif isinstance(node, ast.Import):
            found |= {each.asname or each.name: each.name for each in node.names}
    return found


def _computed(tree: ast.Module) -> Iterator[str]:
    """Modules of vLLM that are imported by a string, and what is taken from them on the spot."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if re.fullmatch(r"vllm(\.[a-z0-9_]+)+\.?", node.value):
                yield node.value.rstrip(".")
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Call) and node.value.args:
            first = node.value.args[0]
            if isinstance(first, ast.Constant) and re.fullmatch(r"vllm(\.\w+)+", str(first.value)):
                yield f"{first.value}.{node.attr}"


def _private(node: ast.AST) -> Iterator[str]:
    """The private name that is asked of some object here."""
    if isinstance(node, ast.Attribute) and re.match(r"_[a-z]", node.attr):
        yield node.attr
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and len(node.args) > 1:
        asked = node.args[1] if node.func.id in ("getattr", "setattr", "hasattr") else None
        if isinstance(asked, ast.Constant) and re.match(r"_[a-z]", str(asked.value)):
            yield str(asked.value)


def _replaced(node: ast.AST, functions: Set[str]) -> Iterator[str]:
    """Attributes of other objects that are set to one of `functions` here, or to what one makes."""
    for target in node.targets if isinstance(node, ast.Assign) else ():
        if isinstance(target, ast.Attribute) and not _is_self(target.value):
            used = {getattr(each, "attr", getattr(each, "id", "")) for each in ast.walk(node.value)}
            if used & functions:
                yield target.attr


def _own(node: ast.AST) -> Iterator[str]:
    """The private names that our code defines here: attributes of `self`, functions, fields, globals."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        if isinstance(node, ast.ClassDef):
            for each in node.body:
                yield from _targets(each)
        else:
            yield node.name
    elif isinstance(node, ast.Module):
        for each in node.body:
            yield from _targets(each)
    elif isinstance(node, ast.Assign | ast.AnnAssign):
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            for each in ast.walk(target):
                if isinstance(each, ast.Attribute) and _is_self(each.value):
                    yield each.attr


def _targets(node: ast.stmt) -> Iterator[str]:
    if isinstance(node, ast.Assign | ast.AnnAssign):
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            yield from (each.id for each in ast.walk(target) if isinstance(each, ast.Name))


def _is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


def _bound(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
            yield node.name
        elif isinstance(node, ast.ImportFrom | ast.Import):
            yield from (each.asname or each.name for each in node.names)
        elif isinstance(node, ast.stmt):
            yield from _targets(node)


def listed(page: str) -> dict[tuple[str, str], tuple[str, str]]:
    """What a page has: kind and name -> the files that use it, and the releases in which it was seen."""
    return {
        (block[2], cells[0].strip("`")): (cells[1], cells[2])
        for block in _BLOCK.finditer(page)
        for line in block[0].splitlines()
        if line.startswith("| `")
        for cells in [[cell.strip() for cell in line.strip("|").split("|")]]
    }


def files_of(paths: Iterable[str]) -> str:
    """As a cell of the tables names them."""
    return ", ".join(sorted(path.removeprefix("core/vllm_adapter/").removesuffix(".py") for path in paths))


def filled(page: str, names: Touched, seen: Mapping[tuple[str, str], str]) -> str:
    """A page with its tables written anew. `seen`: the releases that have each name."""

    def table(block: re.Match[str]) -> str:
        rows = [f"| {KINDS[block[2]].lower()} | in | seen in |", "|---|---|---|"]
        for (kind, name), paths in sorted(names.items()):
            if kind == block[2]:
                rows.append(f"| `{name}` | {files_of(paths)} | {seen[kind, name]} |")
        return block[1] + "\n".join(rows) + "\n" + block[3]

    return _BLOCK.sub(table, page)


def _told(those: list[str], releases: list[str]) -> str:
    if not those:
        return "none"
    first, last = releases.index(those[0]), releases.index(those[-1])
    whole = releases[first : last + 1] == those and len(those) > 1
    return f"{those[0]} – {those[-1]}" if whole else ", ".join(those)


def covers(seen: str, release: str) -> bool:
    """Whether a cell says that this release has it."""
    first, dash, last = seen.partition(" – ")
    if dash:
        return Version(first) <= Version(release) <= Version(last)
    return release in seen.split(", ")


def main(releases: list[str]) -> None:
    texts = {release: Vllm(source(release) / "vllm") for release in releases}
    names: Touched = {}
    for vllm in texts.values():
        for key, paths in touched(vllm).items():
            names.setdefault(key, set()).update(paths)
    seen = {key: [release for release, vllm in texts.items() if vllm.holds(*key)] for key in names}
    PAGE.write_text(filled(PAGE.read_text(), names, {key: _told(each, releases) for key, each in seen.items()}))


if __name__ == "__main__":
    main(sys.argv[1:])
