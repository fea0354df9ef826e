"""An id stands for the code that can change its point's result, and for no other."""

import contextlib
import functools
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from engines.registry import ENGINES
from harness.experiments.identity import (
    CALLER,
    LOOKED_UP,
    NAMED_ELSEWHERE,
    ONLY_ON,
    PACKAGES,
    WORKER,
    Program,
    roots_of,
)
from harness.experiments.imports import modules, package_of, read, targets, within
from harness.experiments.provenance import ROOT
from workloads.deferred import Deferred
from workloads.registry import WORKLOADS

DEVICES = ("virtual", "paced", "cpu", "sockets", "live")
SYSTEMS = ("liveserve", "vllm_omni")
Ids = dict[tuple[str, str], str]


def ids(root: Path, workload: str = "voice") -> Ids:
    """(device, system) -> hash of a point in the program at `root`; nobody here builds the system of device live."""
    program = Program(root)
    return {
        (device, system): program.code_hash(
            device, roots_of(WORKLOADS[workload], *(ENGINES[system].code({}) if device != "live" else []))
        )
        for device in DEVICES
        for system in SYSTEMS
    }


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the program, of which each test takes back what it changed."""
    root = tmp_path_factory.mktemp("program")
    for package in (*PACKAGES, "reports"):
        folder = package.replace(".", "/")
        shutil.copytree(ROOT / folder, root / folder, ignore=shutil.ignore_patterns("__pycache__"))
    return root


@pytest.fixture(scope="module")
def now() -> Ids:
    return ids(ROOT)


def changed(before: Ids, after: Ids) -> Ids:
    return {point: hash for point, hash in after.items() if before[point] != hash}


@contextlib.contextmanager
def changes(root: Path, file: str) -> Iterator[None]:
    """The file with one more statement or entry, or a new one."""
    path = root / file
    text = path.read_text() if path.exists() else None
    path.write_text((text or "") + ("\nnew = 1\n" if path.suffix == ".py" else "\nnew: 1\n"))
    try:
        yield
    finally:
        path.unlink() if text is None else path.write_text(text)


def add(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        with (root / name).open("a") as file:
            file.write(text)
    return root


ALL = {(device, system) for device in DEVICES for system in SYSTEMS}
SOCKETS = {point for point in ALL if point[0] in ("sockets", "live")}


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("engines/core/engine.py", ALL),
        ("engines/core/vllm_adapter/scheduling.py", ALL),
        ("engines/deployments/llama_tiny.yaml", ALL),
        ("engines/deployments/a_new_one.yaml", ALL),
        ("engines/devices/profiles/llama_tiny.yaml", ALL),
        ("harness/worker/replay.py", ALL),
        ("harness/metrics/turns.py", ALL),
        ("workloads/generators/voice.py", ALL),
        ("workloads/replays/csv_logs.py", set()),
        ("harness/live/run/measure_live.py", SOCKETS),
        ("harness/live/run/load_generator.py", SOCKETS),
        ("harness/serving/engine_server.py", SOCKETS),
        ("engines/endpoint/websocket_server.py", SOCKETS),
        ("engines/devices/real.py", {point for point in ALL if point[0] == "cpu"}),
        (
            "engines/systems/liveserve/urgency.py",
            {p for p in ALL if p[1] == "liveserve" and p[0] != "live"},
        ),
        (
            "engines/systems/liveserve/tuned.yaml",
            {p for p in ALL if p[1] == "liveserve" and p[0] != "live"},
        ),
        # Defaults, which are in the point's parameters
        ("engines/systems/vllm_omni/__init__.py", set()),
        ("engines/speaking/pipeline.py", ALL),
        ("engines/composition.py", ALL),
        ("engines/calls/gateway.py", SOCKETS),
        ("harness/doctor.py", set()),
        ("harness/experiments/provenance.py", set()),
        ("reports/pages/html.py", set()),
        ("reports/pages/report.css", set()),
    ],
)
def test_a_change_gives_other_ids_where_it_can_change_results(
    tree: Path, now: Ids, file: str, expected: set[tuple[str, str]]
) -> None:
    with changes(tree, file):
        assert changed(now, ids(tree)).keys() == expected


def test_what_fills_a_seam_counts_where_it_is_chosen(tree: Path) -> None:
    def hash_of(**settings: str) -> str:
        roots = roots_of(WORKLOADS["voice"], *ENGINES["vllm_omni"].code(settings))
        return Program(tree).code_hash("virtual", roots)

    chosen = [{}, {"order": "liveserve"}, {"kv": "liveserve"}]
    before = [hash_of(**settings) for settings in chosen]
    with changes(tree, "engines/systems/liveserve/urgency.py"):
        after = [hash_of(**settings) for settings in chosen]
    assert [a == b for a, b in zip(before, after, strict=True)] == [True, False, False]


def test_prose_and_layout_change_no_id(tree: Path, now: Ids, tmp_path: Path) -> None:
    tree = shutil.copytree(tree, tmp_path / "program")
    for path in tree.rglob("*.py"):
        with path.open("a") as file:
            file.write('\n\n# A comment.\n"""Said of nothing."""\n')
    engine = tree / "engines/core/engine.py"
    text = engine.read_text()
    documented, docstrings = re.subn(r'^( +""")(?=\w)', r"\1In other words: ", text, flags=re.MULTILINE)
    assert docstrings > 5
    engine.write_text(documented + "\nif TYPE_CHECKING:\n    from engines.systems import liveserve\n")
    assert ids(tree) == now


def test_without_roots_every_system_and_workload_counts(tree: Path) -> None:
    before = Program(tree).code_hash("virtual")
    for file in ("engines/systems/liveserve/urgency.py", "workloads/replays/csv_logs.py"):
        with changes(tree, file):
            assert Program(tree).code_hash("virtual") != before


def test_what_looks_up_workloads_imports_nothing_else_that_counts() -> None:
    """The roots stand in for it, so all that it imports is either a workload or reached without it."""
    program, (workload, *_) = Program(), WORKLOADS.values()
    everything = program.closure("virtual")
    reached = program.closure("virtual", roots_of(workload))
    for name in WORKLOADS:
        reached |= program.closure("virtual", roots_of(WORKLOADS[name]))
    for name in ENGINES:
        reached |= program.closure("virtual", roots_of(*ENGINES[name].code({})))
    here = modules(ROOT, PACKAGES)
    for registry in ("workloads.registry", "engines.registry"):
        source, package = read(here[registry].read_bytes()), package_of(registry, here[registry])
        assert targets(source.imports, package, here) & everything <= reached


def test_the_tables_name_what_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    here = modules(ROOT, PACKAGES)
    folders = {name.rpartition(".")[0] for name in here}
    assert {*WORKER, *CALLER, *LOOKED_UP, *NAMED_ELSEWHERE} <= here.keys()
    assert {*ONLY_ON, *LOOKED_UP.values()} <= here.keys() | folders
    program, needed = Program(), dict(ONLY_ON)
    for name in needed:
        monkeypatch.setattr(
            "harness.experiments.identity.ONLY_ON", {k: v for k, v in needed.items() if k != name}
        )
        reached = {
            each for device in DEVICES for each in program.closure(device, ("workloads.generators.voice",))
        }
        assert any(within(each, [name]) for each in reached), f"nothing imports {name}"


MINI = {
    "harness/worker/measure.py": "from engines.one import f\n",
    "engines/one.py": "def f():\n    from engines.two import g\n    return g\n",
    "engines/two.py": "from workloads import three\n",
    "workloads/three.py": ("NAMES = ['engines.named', 'engines.deferred:thing', 'nothing']\n"),
    "engines/deferred.py": "thing = 1\n",
    "engines/named.py": "import engines.typed_only_by_others\n",
    "engines/typed_only_by_others.py": "",
    "engines/aside.py": "from __future__ import annotations\n",
    "engines/__init__.py": (
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import engines.aside\n"
    ),
}


def closure(root: Path, *roots: str) -> set[str]:
    return Program(root).closure("virtual", roots)


def test_the_closure_follows_functions_packages_and_names_but_no_type_checking(tmp_path: Path) -> None:
    assert closure(add(tmp_path, MINI)) == {
        "harness.worker.measure",
        "engines",
        "engines.one",
        "engines.two",
        "engines.named",
        "engines.deferred",
        "engines.typed_only_by_others",
        "workloads.three",
    }


@pytest.mark.parametrize(
    "text",
    [
        "from importlib import import_module\nimport_module(f'{__name__}.{1}')\n",
        "import importlib\nlist(map(importlib.import_module, []))\n",
        "from importlib import import_module as load\nload(name)\n",
        "__import__(name)\n",
        "from pkgutil import resolve_name\nresolve_name(name)\n",
    ],
)
def test_a_computed_import_counts_as_one_of_its_whole_package(tmp_path: Path, text: str) -> None:
    add(
        tmp_path,
        {
            **MINI,
            "engines/kit/__init__.py": text,
            "engines/kit/tool.py": "",
            "engines/two.py": "",
        },
    )
    add(tmp_path, {"engines/two.py": "from engines import kit\n"})
    assert {"engines.kit.tool"} == closure(tmp_path) & {
        "engines.kit.tool",
        "engines.aside",
    }


def test_a_constant_import_does_not(tmp_path: Path) -> None:
    text = "from importlib import import_module\nimport_module('json')\n"
    add(tmp_path, {**MINI, "engines/two.py": text})
    assert "engines.aside" not in closure(tmp_path)


def test_data_belong_to_the_nearest_package_with_code(tmp_path: Path) -> None:
    add(
        tmp_path,
        {
            **MINI,
            "engines/kit/__init__.py": '"""Data."""\n',
            "engines/kit/sizes.csv": "1\n",
        },
    )
    add(tmp_path, {"engines/other/code.py": "", "engines/other/deep/more.json": "{}"})
    found = Program(tmp_path).contents("virtual")
    assert "engines/kit/sizes.csv" in found and "engines/other/deep/more.json" not in found
    found = Program(tmp_path).contents("virtual", ("engines.other.code",))
    assert "engines/other/deep/more.json" in found


def test_a_root_of_another_package_stands_for_all_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(tmp_path / "program", {**MINI, "engines/two.py": "\n"})
    files = {
        "__init__.py": "",
        "entry.py": "from engines import aside\n",
        "other.py": "",
        "sizes.yaml": "a: 1\n",
    }
    add(tmp_path / "site" / "foreign_system", files)
    add(tmp_path / "site", {"foreign_file.py": "x = 1\n"})
    monkeypatch.syspath_prepend(tmp_path / "site")
    program = Program(tmp_path / "program")
    plain = program.contents("virtual", ("engines.one",))
    found = program.contents("virtual", ("engines.one", "foreign_system.entry"))
    assert found.keys() - plain.keys() == {
        "foreign_system",
        "foreign_system.entry",
        "foreign_system.other",
        "foreign_system/sizes.yaml",
        "engines.aside",
    }
    assert program.contents("virtual", ("engines.one",)) == plain, "an answer depends on no earlier question"
    assert "foreign_file" in program.contents("virtual", ("foreign_file",))
    for unknown in ("engines.nothing", "foreign_system.nothing", "nowhere_at_all"):
        with pytest.raises(ValueError, match=unknown):
            program.contents("virtual", (unknown,))
    with pytest.raises(ValueError, match="'abacus'"):
        program.code_hash("abacus")


def test_roots_are_where_a_spec_and_its_parts_are_defined() -> None:
    class Spec:
        generate = None

        def __init__(self) -> None:
            self.name, self.Params, self.items = "mine", Program, [1]
            self.generate = functools.partial(functools.partial(modules, ROOT), PACKAGES)
            self.later = Deferred("workloads.generators.voice:voice")

    assert roots_of(Spec()) == tuple(
        sorted((Program.__module__, modules.__module__, __name__, "workloads.generators.voice"))
    )


POINTS = """
import json, sys
from harness.experiments.expand import expand
from harness.experiments.experiment import Experiment
from harness.worker.measure import measure
for experiment in json.loads(sys.argv[1]):
    (point,) = expand(Experiment(**experiment))
    measure(point)
print(json.dumps(sorted(sys.modules)))
"""


def test_a_replay_loads_nothing_that_does_not_count() -> None:
    """But for what the registries import, and what the table says: it is loaded with others, and nothing calls it."""
    turns = {"workload": "voice", "set": {"deployment": "speech_tiny", "sessions": 1}}
    frames = {"workload": "metronome", "set": {"sessions": 1, "duration_s": 8}}
    frames["set"] |= {"deployment": "qwen3_omni_pro6000"}
    experiments = [
        {"name": "turns", "engines": ["liveserve"], **turns},
        {"name": "frames", "engines": ["metronome"], **frames},
    ]
    command = [sys.executable, "-c", POINTS, json.dumps(experiments)]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    loaded = set(json.loads(done.stdout.splitlines()[-1])) & modules(ROOT, PACKAGES).keys()
    program = Program()
    specs = [
        *(part for name in ("liveserve", "metronome") for part in ENGINES[name].code({})),
        WORKLOADS["voice"],
        WORKLOADS["metronome"],
    ]
    counts = program.closure("virtual", roots_of(*specs))
    looked_up = program.closure("virtual") - counts
    of_no_point = [name for name, (devices, _) in ONLY_ON.items() if not devices]
    others = {name for name in loaded - counts - looked_up if not within(name, of_no_point)}
    # vLLM looks into it where we are installed
    plugin = {"engines.stock", "engines.stock.plugin"}
    assert others - plugin == {
        "harness.experiments.imports",
        "harness.endpoints",
        "harness.endpoints.target",
    }, "the hash itself, parameters of device live"
