"""An id stands for the code that can change its point's result, and for no other."""

import contextlib
import functools
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from itertools import product
from pathlib import Path

import pytest

from engines.registry import ENGINES
from harness.experiments import identity
from harness.experiments.identity import PACKAGES, code_hash, metrics_hash, roots_of
from harness.experiments.provenance import ROOT
from tests.import_graph import modules
from workloads.deferred import Deferred
from workloads.registry import WORKLOADS

DEVICES = ("virtual", "paced", "cpu", "sockets", "live")
SYSTEMS = ("liveserve", "vllm_omni")
Ids = dict[tuple[str, str], str]


def ids(root: Path) -> Ids:
    """(device, system) -> hash of a point in the program at `root`; nobody here builds the system of device live."""
    code_hash.cache_clear()

    def roots(device: str, system: str) -> tuple[str, ...]:
        return roots_of(WORKLOADS["voice"], *(ENGINES[system].code({}) if device != "live" else []))

    return {point: code_hash(point[0], roots(*point), root) for point in product(DEVICES, SYSTEMS)}


def hashes(root: Path, *roots: tuple[str, ...]) -> list[str]:
    """The hashes of points of device virtual with these roots."""
    code_hash.cache_clear()
    return [code_hash("virtual", each, root) for each in roots]


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


ALL = {*product(DEVICES, SYSTEMS)}
REPLAYS = {*product(("virtual", "paced"), SYSTEMS)}
OVER_SOCKETS = {*product(("sockets", "live"), SYSTEMS)}
OURS = {point for point in ALL if point[0] != "live"}
LIVESERVE = {point for point in OURS if point[1] == "liveserve"}


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("engines/core/engine.py", OURS),
        ("engines/deployments/llama_tiny.yaml", OURS),
        ("engines/composition.py", OURS),
        ("harness/replays/worker/replay.py", OURS),
        ("harness/request_tables/request_table.py", ALL),
        ("workloads/generators/voice.py", ALL),
        ("workloads/replays/csv_logs.py", ALL - REPLAYS),
        ("harness/live/run/load_generator.py", OVER_SOCKETS),
        ("harness/serving/engine_server.py", OVER_SOCKETS & OURS),
        ("engines/systems/liveserve/urgency.py", LIVESERVE),
        ("engines/systems/liveserve/tuned.yaml", LIVESERVE),
        ("engines/systems/vllm_omni/__init__.py", set()),  # its defaults are in the point's parameters
        ("harness/metrics/turns.py", set()),
        ("harness/records/record.py", set()),
        ("engines/registry.py", set()),
        ("reports/pages/html.py", set()),
    ],
)
def test_a_change_gives_other_ids_where_it_can_change_results(
    tree: Path, now: Ids, file: str, expected: set[tuple[str, str]]
) -> None:
    with changes(tree, file):
        assert changed(now, ids(tree)).keys() == expected


def test_code_of_a_chosen_scheduler_or_kv_manager_counts(tree: Path) -> None:
    chosen = [{}, {"scheduler": "liveserve"}, {"kv": "liveserve"}]
    roots = [roots_of(WORKLOADS["voice"], *ENGINES["vllm_omni"].code(settings)) for settings in chosen]
    before = hashes(tree, *roots)
    with changes(tree, "engines/systems/liveserve/urgency.py"):
        after = hashes(tree, *roots)
    assert [a == b for a, b in zip(before, after, strict=True)] == [True, False, False]


def test_prose_and_layout_change_no_id(tree: Path, now: Ids, tmp_path: Path) -> None:
    tree = shutil.copytree(tree, tmp_path / "program")
    for path in tree.rglob("*.py"):
        path.write_text(path.read_text() + '\n\n# A comment.\n"""Said of nothing."""\n')
    for path in tree.rglob("*.yaml"):
        path.write_text(f"# A comment.\n{path.read_text()}\n# Another one.\n")
    engine = tree / "engines/core/engine.py"
    documented, docstrings = re.subn(r'^( +""")(?=\w)', r"\1In other words: ", engine.read_text(), flags=re.MULTILINE)
    assert docstrings > 5
    engine.write_text(documented + "\nif TYPE_CHECKING:\n    from engines.systems import liveserve\n")
    assert ids(tree) == now


@pytest.mark.parametrize(
    ("before", "after", "same"),
    [
        ('raise ValueError(f"no block {name} is free")', 'raise ValueError(f"{name} is taken, wait for it")', True),
        ('raise Refused("kv")', 'raise Refused("slots")', False),
        ('raise ValueError(f"no block {name} is free")', 'raise ValueError(f"no block {other} is free")', False),
        ('_log.warning("a block was %s late", n)', '_log.warning("%s blocks came late", n)', True),
        ('assert n, "there is a block"', 'assert n, "a block is left"', True),
        ('assert n, "there is a block"', 'assert m, "there is a block"', False),
        ('x: int = Field(4, ge=0, description="blocks held")', 'x: int = Field(4, ge=0, description="blocks")', True),
        ('x: int = Field(4, description="blocks held")', 'x: int = Field(5, description="blocks held")', False),
        ('log.event(t, "two words")', 'log.event(t, "other words")', False),
    ],
)  # fmt: skip
def test_text_that_no_log_can_hold_changes_no_hash(before: str, after: str, same: bool) -> None:
    assert (identity.running(before.encode()) == identity.running(after.encode())) == same


def test_every_listed_file_and_folder_exists() -> None:
    assert [name for name in (*identity.ALWAYS, *identity.SOCKETS) if not (ROOT / name).is_dir()] == []
    files = (*identity.SERVERS, *identity.METRICS, *identity.NAMING)
    assert [name for name in files if not (ROOT / name).exists()] == []


@pytest.fixture
def foreign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of another author: a system, a module, and a paper with a card, a page and a GPU."""
    files = dict.fromkeys(("__init__.py", "entry.py", "other.py", "sizes.yaml", "page.md", "page.json"), "")
    files |= {"fig1.py": "EXPERIMENTS = {}\n", "broken.py": "def (\n", "gpus/__init__.py": "", "gpus/mine.yaml": ""}
    for name, text in {**files, "../foreign_file.py": "x = 1\n"}.items():
        (tmp_path / "foreign" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "foreign" / name).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    facts = EntryPoint("mine", "foreign.gpus", "rehearsal.gpus")
    monkeypatch.setattr(identity, "entry_points", lambda group: [facts] if group == facts.group else [])
    return tmp_path


def test_a_root_of_another_package_stands_for_all_its_files_but_cards_and_pages(tree: Path, foreign: Path) -> None:
    asked = (), ("foreign.entry",), ("foreign_file",), ("engines.systems.liveserve.kv",)
    changing = {"entry.py": [1], "other.py": [1], "sizes.yaml": [1], "broken.py": [1], "../foreign_file.py": [2]}
    changing |= {"fig1.py": [], "page.md": [], "page.json": [], "gpus/mine.yaml": [0, 1, 2, 3]}
    before = hashes(tree, *asked)
    for file, expected in changing.items():
        with changes(foreign / "foreign", file):
            after = hashes(tree, *asked)
        assert [i for i, hash in enumerate(after) if hash != before[i]] == expected, file


def test_a_root_without_source_is_refused(tree: Path, foreign: Path) -> None:
    for unknown in ("engines.nothing", "engines.systems.nothing", "foreign.nothing", "nowhere_at_all"):
        with pytest.raises(ValueError, match=unknown):
            code_hash("virtual", (unknown,), tree)
    with pytest.raises(ValueError, match="'abacus'"):
        code_hash("abacus", (), tree)


def test_roots_are_the_modules_that_define_a_spec_and_its_parts() -> None:
    class Spec:
        def __init__(self) -> None:
            self.name, self.Params, self.items = "mine", Path, [1]
            self.generate = functools.partial(functools.partial(modules, ROOT), PACKAGES)
            self.later = Deferred("workloads.generators.voice:voice")

    assert roots_of(Spec()) == tuple(sorted((modules.__module__, __name__, "workloads.generators.voice")))


POINTS = """
import json, sys
from harness.by_device import expand
from harness.experiments.experiment import Experiment
from harness.replays.worker.replay import replay
for experiment in json.loads(sys.argv[1]):
    (point,) = expand(Experiment(**experiment))
    replay(point, point.trace())
print(json.dumps(sorted(sys.modules)))
"""


@pytest.mark.parametrize(
    ("file", "same"),
    [
        ("harness/metrics/turns.py", False),
        ("harness/request_tables/request_table.py", False),
        ("harness/records/record.py", True),
    ],
)
def test_metrics_have_a_hash_of_their_own(tree: Path, file: str, same: bool) -> None:
    metrics_hash.cache_clear()
    before = metrics_hash(tree)
    with changes(tree, file):
        metrics_hash.cache_clear()
        assert (metrics_hash(tree) == before) == same


@pytest.mark.slow("replays in a new process")
def test_every_module_that_a_replay_loads_counts_in_its_hash() -> None:
    turns = {"workload": "voice", "set": {"deployment": "speech_tiny", "sessions": 1}}
    frames = {"deployment": "qwen3_omni_pro6000", "sessions": 1, "duration_s": 8}
    experiments = [
        {"name": "turns", "engines": ["liveserve"], **turns},
        {"name": "frames", "engines": ["metronome"], "workload": "metronome", "set": frames},
    ]
    command = [sys.executable, "-c", POINTS, json.dumps(experiments)]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    files = {name: path.relative_to(ROOT).as_posix() for name, path in modules(ROOT, PACKAGES).items()}
    loaded = files.keys() & json.loads(done.stdout.splitlines()[-1])
    counted = (*identity.ALWAYS, *identity.SERVERS, "engines/systems", "workloads")
    no_log = ("harness/metrics", "harness/experiments", "harness/replays")  # they read logs, or make points
    others = {name for name in loaded if files[name].count("/") > 1 and not files[name].startswith(counted + no_log)}
    assert others <= {"engines.stock", "engines.stock.plugin"}  # vLLM itself looks into our plug-in
