"""Change the code at one random place at a time and list the changes that no test notices: `python -m tools.mutants`.

A mutant is the code with one change by an operator of mutmut. The quick tests run once in a copy of the tree, and
coverage.py says which test reaches which line. Then each mutant meets the tests that reach its line. Annotations,
decorators and text for a reader (strings with a space) are not changed. Lines that only another process runs count as
lines without a test.
"""

import ast
import contextlib
import difflib
import importlib
import json
import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Annotated, Any

import libcst as cst
import pytest
import typer
import yaml
from coverage import Coverage, CoverageData
from libcst.metadata import MetadataWrapper, PositionProvider
from mutmut.mutation.mutators import mutation_operators

ROOT = Path(__file__).absolute().parents[1]
FOLDERS = (
    "harness/slo",
    "harness/metrics",
    "harness/live/verdict.py",
    "reports/claims",
    "reports/comparison",
    "engines/core",
    "engines/systems",
    "workloads/distributions",
    "workloads/formats",
)
EQUIVALENT = ROOT / "tests" / "equivalent_mutants.yaml"
LONGEST_S = 30.0
"""[chosen] The tests of one mutant take at most this long without it; the limit of a run is five times that."""
STARTING_S = 60.0
"""[chosen] Time for Python and pytest to start, on a busy machine."""

OUTCOMES = ("equivalent", "killed", "survived")
FORKS = multiprocessing.get_context("fork")
OURS = ("engines", "harness", "rehearsal", "reports", "tests", "tools", "workloads")
LOADED = ("vllm.engine.arg_utils", "vllm.v1.core.sched.async_scheduler", "vllm.v1.engine.core", "matplotlib.pyplot")
"""What most tests load, and what takes longest: loaded once, before the forks."""
QUICKLY = ("-q", "-n", "0", "-p", "no:cacheprovider", "-p", "tools.mutants", "-m", "not slow")

os.environ.setdefault("OMP_NUM_THREADS", "1")  # no threads where processes are forked

_seconds: dict[str, float] = defaultdict(float)
_failed: set[str] = set()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Name the test to coverage.py, with its fixtures."""
    coverage = Coverage.current()
    if coverage:
        coverage.switch_context(item.nodeid)
    result = yield
    if coverage:
        coverage.switch_context("")
    return result


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _seconds[report.nodeid] += report.duration
    if not report.passed:
        _failed.add(report.nodeid)


def pytest_sessionfinish() -> None:
    passed = {test: taken for test, taken in _seconds.items() if test not in _failed}
    Path(os.environ["MUTANTS_SECONDS"]).write_text(json.dumps(passed))


class _Places(cst.CSTVisitor):
    METADATA_DEPENDENCIES = (PositionProvider,)

    def __init__(self) -> None:
        self.found: list[tuple[int, cst.CSTNode, list[cst.CSTNode]]] = []

    def on_visit(self, node: cst.CSTNode) -> bool:
        if isinstance(node, cst.Annotation | cst.Decorator | cst.Import | cst.ImportFrom):
            return False
        if isinstance(node, cst.BaseString) and " " in cst.Module([]).code_for_node(node):
            return False
        new = [each for kind, operator in mutation_operators if isinstance(node, kind) for each in operator(node)]
        if new:
            position: Any = self.get_metadata(PositionProvider, node)
            self.found.append((position.start.line, node, new))
        return True


@dataclass(frozen=True)
class Mutant:
    """A changed file. `line` counts from 1; `before` and `after` are its changed lines without their indentation."""

    file: str
    line: int
    text: str
    before: str
    after: str


def drawn(files: dict[str, str], count: int, rng: random.Random) -> list[Mutant]:
    """Draw `count` places of the files (name -> text), or all if there are fewer, and one change for each."""
    trees = {file: MetadataWrapper(cst.parse_module(text)) for file, text in files.items()}
    places = []
    for file, tree in trees.items():
        visitor = _Places()
        tree.visit(visitor)
        places += [(file, *place) for place in visitor.found]
    chosen = rng.sample(places, min(count, len(places)))
    return [_mutant(file, line, trees[file].module, old, rng.choice(new)) for file, line, old, new in chosen]


def _mutant(file: str, line: int, module: cst.Module, old: cst.CSTNode, new: cst.CSTNode) -> Mutant:
    changed = module.deep_replace(old, new)
    assert isinstance(changed, cst.Module)
    lines = list(difflib.ndiff(module.code.splitlines(), changed.code.splitlines()))
    before, after = (" ".join(each[2:].strip() for each in lines if each.startswith(sign)) for sign in "-+")
    return Mutant(file, line, changed.code, before, after)


def statement(text: str, line: int) -> range:
    """Return the lines of the innermost statement at a line; without its block, if it has one."""
    lines = range(line, line + 1)
    for node in ast.walk(ast.parse(text)):  # a parent comes before its children
        if isinstance(node, ast.stmt | ast.ExceptHandler) and node.lineno <= line <= (node.end_lineno or 0):
            block = getattr(node, "body", None)
            end = max(block[0].lineno, node.lineno + 1) if block else (node.end_lineno or node.lineno) + 1
            lines = range(node.lineno, end)
    return lines


def reaching(data: CoverageData, path: Path, lines: range, seconds: dict[str, float]) -> list[str]:
    """Return the tests that run any of these lines, the quickest first, at most LONGEST_S together.

    Lines that an import runs concern every test that runs any line of the file."""
    contexts = data.contexts_by_lineno(str(path))
    found = {test for line in lines for test in contexts.get(line, ())}
    if "" in found:
        found.update(test for tests in contexts.values() for test in tests)
    tests = sorted((test for test in found if test in seconds), key=lambda test: (seconds[test], test))
    fit = sum(total <= LONGEST_S for total in accumulate(seconds[test] for test in tests))
    return tests[: max(fit, 1)]


def copied(work: Path) -> Path:
    """Copy the files that git knows to `work`/tree, next to the folder that the tests look for beside the project."""
    tree = work / "tree"
    shutil.rmtree(tree, ignore_errors=True)
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, tree / name)
    shared = work / "shared"
    if (ROOT.parent / "shared").is_dir() and not shared.exists():
        shared.symlink_to(ROOT.parent / "shared")
    return tree


def run(tree: Path, options: list[str], tests: list[str], seconds: Path, limit_s: float | None = None) -> int | None:
    """Run tests in the copy, in a fork of this process; return the exit status, or None past the limit. Nothing that
    they started stays. The fork has vLLM in memory and nothing of the project.

    `seconds`: the file for the tests that pass, with the time that each takes."""
    with tempfile.TemporaryDirectory(prefix="rehearsal-cache-") as cache:
        environ = {"MUTANTS_SECONDS": str(seconds), "REHEARSAL_CACHE": cache, "PYTHONPATH": paths(tree)}
        child = FORKS.Process(target=_tests, args=(tree, [*options, *QUICKLY, *tests], environ))
        child.start()
        assert child.pid is not None
        child.join(limit_s)
        status = child.exitcode
        _end(child.pid)
        child.join()
    return status


def _end(group: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


def _tests(tree: Path, arguments: list[str], environ: dict[str, str]) -> None:
    os.setsid()
    if coverage := Coverage.current():
        coverage.stop()  # else this fork would erase the data of its parent
    log = os.open(tree.parent / "last.log", os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
    for number in (1, 2):
        os.dup2(log, number)
    os.chdir(tree)
    os.environ |= environ
    for name in [name for name in sys.modules if name.partition(".")[0] in OURS]:  # a plugin of vLLM's is among them
        del sys.modules[name]
    sys.path.insert(0, str(tree))
    os._exit(pytest.main(arguments))


def paths(tree: Path) -> str:
    return os.pathsep.join([str(tree), os.environ.get("PYTHONPATH", "")])


def cover(tree: Path, sources: list[str], tests: list[str], data: Path, seconds: Path) -> None:
    """Run tests in the copy under coverage.py, in a program of their own, so that no line is loaded before. Nothing
    that they started stays."""
    data.unlink(missing_ok=True)
    under = ["coverage", "run", f"--data-file={data}", f"--source={','.join(sources)}", "-m", "pytest"]
    environ = {**os.environ, "MUTANTS_SECONDS": str(seconds), "PYTHONPATH": paths(tree)}
    with (tree.parent / "last.log").open("w") as log:
        command = [sys.executable, "-P", "-m", *under, *QUICKLY, *tests]
        child = subprocess.Popen(command, cwd=tree, env=environ, stdout=log, stderr=log, start_new_session=True)
        try:
            child.wait()
        finally:
            _end(child.pid)
            child.wait()


def main(
    folders: Annotated[list[str], typer.Argument(help="folders or files of the project")] = list(FOLDERS),  # noqa: B006
    seed: Annotated[int, typer.Option(help="of the draw")] = 0,
    each: Annotated[int, typer.Option(help="mutants for each folder")] = 30,
    tests: Annotated[list[str], typer.Option(help="files or folders of tests")] = ["tests"],  # noqa: B006
    work: Annotated[Path, typer.Option(help="holds the copy and the coverage")] = ROOT / "build" / "mutants",
    reuse: Annotated[bool, typer.Option("--reuse", help="take the coverage of the last run")] = False,
) -> None:
    """Print the share of the mutants that tests notice, and every mutant that survives."""
    work = work.absolute()
    tree, kept, timed = copied(work), work / "coverage.db", work / "seconds.json"
    if not reuse:
        cover(tree, sorted({folder.split("/")[0] for folder in folders}), tests, kept, timed)
    seconds, data = json.loads(timed.read_text()), CoverageData(str(kept))
    data.read()
    for name in LOADED:
        importlib.import_module(name)
    count = {name: _tried(tree, name, each, random.Random(f"{seed} {name}"), data, seconds) for name in folders}
    print(f"\nseed {seed}\n\n| folder | {' | '.join(OUTCOMES)} | score |\n|---|--:|--:|--:|--:|")
    for name, outcomes in count.items():
        killed, judged = outcomes["killed"], outcomes["killed"] + outcomes["survived"]
        cells = [name, *(outcomes[outcome] for outcome in OUTCOMES), f"{killed / judged:.0%}" if judged else "–"]
        print(f"| {' | '.join(map(str, cells))} |")


def _tried(
    tree: Path, folder: str, each: int, rng: random.Random, data: CoverageData, seconds: dict[str, float]
) -> Counter[str]:
    """Return how many mutants of a folder were killed, survived or are known to be equivalent."""
    paths = sorted((tree / folder).rglob("*.py")) or [tree / folder]
    files = {str(path.relative_to(tree)): path.read_text() for path in paths}
    equivalent = {(one["file"], one["before"], one["after"]) for one in yaml.safe_load(EQUIVALENT.read_text())}
    mutants: dict[Mutant, list[str]] = {}
    for mutant in drawn(files, each, rng):
        lines = statement(files[mutant.file], mutant.line)
        mutants[mutant] = reaching(data, tree / mutant.file, lines, seconds)
    passing, count = _passing(tree, {test for tests in mutants.values() for test in tests}), Counter[str]()
    for mutant, tests in mutants.items():
        if (mutant.file, mutant.before, mutant.after) in equivalent:
            count["equivalent"] += 1
            continue
        chosen = [test for test in tests if test in passing]
        outcome = _met(tree, mutant, files[mutant.file], chosen, sum(seconds[test] for test in chosen))
        count[outcome] += 1
        print(f"{outcome:8} by {len(chosen)} tests: {mutant.file}:{mutant.line}", flush=True)
        if outcome == "survived":
            print(f"    - {mutant.before}\n    + {mutant.after}", flush=True)
    return count


def _passing(tree: Path, tests: set[str]) -> set[str]:
    """Return the tests that pass in such a selection; one that fails in it would kill every mutant."""
    control = tree.parent / "control.json"
    control.write_text("{}")
    if tests:
        run(tree, [], sorted(tests), control)
    passing = set(json.loads(control.read_text()))
    if tests and not passing:
        raise SystemExit(f"No test passes without a mutant, see {tree.parent / 'last.log'}; run without --reuse.")
    return passing


def _met(tree: Path, mutant: Mutant, text: str, tests: list[str], taken_s: float) -> str:
    if not tests:
        return "survived"
    path = tree / mutant.file
    path.write_text(mutant.text)
    _outdate(path)
    try:
        status = run(tree, ["-x"], tests, tree.parent / "last.json", STARTING_S + 5 * taken_s)
    finally:
        path.write_text(text)
        _outdate(path)
    return "survived" if status == 0 else "killed"


def _outdate(path: Path) -> None:
    """Compiled files are known by whole seconds and size, which a mutant may share with the original."""
    (path.parent / "__pycache__" / f"{path.stem}.{sys.implementation.cache_tag}.pyc").unlink(missing_ok=True)


if __name__ == "__main__":
    typer.run(main)
