"""The program's part of a point's id: the code and data that can change the result of that kind of point.

It is found statically, as the closure of imports from the modules that a worker runs and from those of the point's
system and workload. A name that cannot be told from the text is included: too much measures again, too little resumes
stale numbers.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import re
import sys
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

from engines.devices.names import DEVICES, REAL_DEVICES, SOCKET_DEVICES
from harness.experiments.imports import files, modules, package_of, parents, read, targets, within
from harness.experiments.provenance import DECIDING, ROOT, packages
from workloads.deferred import Deferred

PACKAGES = ("workloads", "engines", "harness")
"""`reports` is left out: it only shows numbers."""

WORKER = (
    "harness.executors.local",
    "harness.worker.isolation",
    "harness.worker.preload",
    "harness.worker.measure",
)
"""Modules that run a point on every device."""
CALLER = ("harness.live.run.live_executor",)
"""Modules that run a point besides on the devices behind sockets."""

ONLY_ON: dict[str, tuple[tuple[str, ...], str]] = {
    "harness.live": (SOCKET_DEVICES, "calls over sockets"),
    "harness.endpoints": (
        SOCKET_DEVICES,
        "the client's side of a server; elsewhere only the parameters of its target are loaded",
    ),
    "harness.serving": (SOCKET_DEVICES, "a server in a process of its own"),
    "engines.endpoint": (SOCKET_DEVICES, "the front of that server"),
    "engines.devices.real": (
        REAL_DEVICES,
        "executes a model; the servers import it when the device is real",
    ),
    "engines.devices.audio_encoder": (REAL_DEVICES, "hears with a model that is executed"),
    "engines.core.vllm_adapter.execution": (
        REAL_DEVICES,
        "vLLM's executor, which nothing modelled asks for",
    ),
    "engines.core.vllm_adapter.attention_backend": (REAL_DEVICES, "kernels of that executor"),
    "engines.core.vllm_adapter.attention": (REAL_DEVICES, "kernels of that executor"),
    "harness.experiments.provenance": ((), "says where numbers come from and changes none"),
    "harness.experiments.identity": ((), "as provenance"),
}
"""Module or package -> the devices whose points it can change, and why no others. On the others imports of it do not
count: they stand in functions not called there. tests/harness/test_identity.py looks at what a replay loads."""

LOOKED_UP = {
    "engines.registry": "engines.systems",
    "workloads.registry": "workloads",
}
"""Module that finds systems or workloads by name -> the package where it finds them. A point uses one of each, so their
imports from there count only for points that are asked for without roots."""

NAMED_ELSEWHERE = ("workloads.optional", "workloads.deferred")
"""Import by a name that is computed: of a library, or one that stands in the text of those who call them."""

_NAMES_MODULE = re.compile(rf"value='((?:{'|'.join(map(re.escape, PACKAGES))})(?:\.\w+)+)(?::\w+)?'")
_IMPORTERS = "import_module|resolve_name"
_COMPUTED_IMPORT = re.compile(
    rf"(?:id|attr)='(?:{_IMPORTERS}|__import__)', ctx=Load\(\)\)(?!, args=\[Constant\()"
    rf"|alias\(name='(?:{_IMPORTERS})', asname="
)


@cache
def code_hash(device: str, roots: tuple[str, ...] = ()) -> str:
    """SHA-256 over what can change the result of a point on `device`, with the versions of vLLM and NumPy.

    `roots`: the modules of its system and workload, see `roots_of`; without any, those of all systems and workloads.
    It is a part of each point's id, so a changed program measures again instead of resuming numbers of its predecessor.
    Comments, docstrings and layout change no hash.
    """
    return _here().code_hash(device, roots)


def roots_of(*specs: Any) -> tuple[str, ...]:
    """The modules that define `specs`, such as `System.code` gives, and what is in their fields."""
    found = set()
    for spec in specs:
        for value in (type(spec), *vars(spec).values()):
            while isinstance(value, partial):
                value = value.func
            if isinstance(value, Deferred):
                found.add(value.module)
                continue
            found.add(getattr(value, "__module__", None) or type(value).__module__)
    return tuple(sorted(name for name in found if name.partition(".")[0] not in sys.stdlib_module_names))


@dataclass(frozen=True)
class _Code:
    """The content of a module, and the modules it leads to by import or by a string that is their name.

    `computed`: it imports by a name that the text does not tell.
    """

    digest: str
    leads: frozenset[str]
    computed: bool


class Program:
    """The program as it stands in the folder `root`; each file is read at most once."""

    def __init__(self, root: Path = ROOT) -> None:
        self._ours = modules(root, PACKAGES)
        self._files = dict(self._ours)  # and those of other packages, as their modules become roots
        self._parents: dict[str, Path] = {package: root for package in PACKAGES}
        self._codes: dict[str, _Code] = {}
        self._data: dict[str, list[tuple[str, str, str]]] = {}

    def code_hash(self, device: str, roots: tuple[str, ...] = ()) -> str:
        """Returns the function's hash; ValueError for an unknown device or a root that is no module."""
        digest = hashlib.sha256(repr(packages(DECIDING)).encode())
        for name, content in sorted(self.contents(device, roots).items()):
            digest.update(f"{name} {content}\n".encode())
        return digest.hexdigest()

    def contents(self, device: str, roots: tuple[str, ...] = ()) -> dict[str, str]:
        """Modules by their names and data files by their paths -> SHA-256."""
        closure = self.closure(device, roots)
        found = {name: self._code(name).digest for name in closure}
        folders = {package_of(name, self._files[name]) for name in closure}
        for top in {_top(name) for name in closure}:
            found |= {path: content for folder, path, content in self._data_of(top) if folder in folders}
        return found

    def closure(self, device: str, roots: tuple[str, ...] = ()) -> set[str]:
        """The modules that count."""
        if device not in DEVICES:
            raise ValueError(f"unknown device {device!r}")
        beyond = tuple(name for name, (devices, _) in ONLY_ON.items() if device not in devices)
        waiting = [*WORKER, *(CALLER if device in SOCKET_DEVICES else ())]
        for root in roots:
            waiting += self._root(root)
        found: set[str] = set()
        while waiting:
            name = waiting.pop()
            # A folder without `__init__` is a package, too, but nothing to read.
            if name in self._files and name not in found and not within(name, beyond):
                found.add(name)
                waiting += [*parents(name), *self._leads(name, bool(roots))]
        return found

    def _root(self, name: str) -> list[str]:
        """A root of ours; of another package every module, as nothing says what else its entry needs of it."""
        top = _top(name)
        if top not in self._parents:
            spec = importlib.util.find_spec(top)
            where = (spec.submodule_search_locations or [spec.origin or ""])[0] if spec is not None else ""
            self._parents[top] = Path(where).parent
            single = {top: Path(where)} if where.endswith(".py") else {}
            self._files |= single or modules(self._parents[top], (top,))
        if name not in self._files:
            raise ValueError(f"{name} has no source, so nothing tells when it changes")
        return [name] if top in PACKAGES else self._below(top)

    def _leads(self, name: str, rooted: bool) -> list[str]:
        code, below = self._code(name), LOOKED_UP.get(name)
        if below is not None and rooted:
            return [lead for lead in code.leads if not within(lead, (below,))]
        if below is None and code.computed and name not in NAMED_ELSEWHERE:
            below = package_of(name, self._files[name])
        return [*code.leads, *(self._below(below) if below is not None else ())]

    def _below(self, package: str) -> list[str]:
        return [name for name in self._files if within(name, (package,))]

    def _code(self, name: str) -> _Code:
        if name not in self._codes:
            path = self._files[name]
            source = read(path.read_bytes())
            text = ast.dump(source.tree)
            leads = targets(source.imports, package_of(name, path), self._ours)
            for named in _NAMES_MODULE.findall(text):
                leads |= {named, f"{named}.__main__"} & self._ours.keys()  # the latter for `python -m`
            # The pattern is slow, and most files do not even have the words.
            may = any(word in text for word in ("import_module", "resolve_name", "__import__"))
            computed = may and _COMPUTED_IMPORT.search(text) is not None
            self._codes[name] = _Code(_sha256(text.encode()), frozenset(leads), computed)
        return self._codes[name]

    def _data_of(self, top: str) -> list[tuple[str, str, str]]:
        """Package, path and SHA-256 of each file that is not Python: of the nearest package above that has code."""
        if top not in self._data:
            parent, found = self._parents[top], []
            coded = {package_of(name, path) for name, path in self._files.items() if self._has_code(path)}
            for path in files(parent / top):
                if path.suffix != ".py":
                    folder = ".".join(path.parent.relative_to(parent).parts)
                    while folder not in coded and "." in folder:
                        folder = folder.rpartition(".")[0]
                    found.append((folder, path.relative_to(parent).as_posix(), _sha256(path.read_bytes())))
            self._data[top] = found
        return self._data[top]

    @staticmethod
    def _has_code(path: Path) -> bool:
        """Whether more than a docstring; a package that holds only data may have an `__init__` of that kind."""
        return path.name != "__init__.py" or bool(read(path.read_bytes()).tree.body)


def _top(module: str) -> str:
    return module.partition(".")[0]


@cache
def _here() -> Program:
    return Program()


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
