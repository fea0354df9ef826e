"""`examples/gate.yml` in the repository of a user's package, step by step: what passes is kept, what is worse fails."""

import hashlib
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness.metrics.vocabulary import definition
from reports.comparison.gate import LEAST_SEEDS, parse
from tests.examples.test_examples import EXAMPLES, ROOT

WORKFLOW = yaml.safe_load((EXAMPLES / "gate.yml").read_text())
SMALL = "--set requests=40 --set documents=15 --set scheduler=fcfs,edf --seeds 5"
OFFLINE = (
    f"{sys.executable} -m pip install --quiet --no-deps --no-build-isolation --no-index --upgrade "
    '--target "$SITE" "$PACKAGE"'
)
"""In the place of the step that installs: Rehearsal is here, and an index is not."""


@dataclass
class Ended:
    """Of a run of the workflow: the step that failed, "" if none did, and what it wrote for people."""

    failed: str
    summary: str
    printed: str


@dataclass
class Runner:
    """What the workflow needs of GitHub's runner: its steps in a fresh checkout, and caches that outlive it."""

    place: Path
    runs: int = 0

    @property
    def repository(self) -> Path:
        return self.place / "repository"

    def run(self, event: str) -> Ended:
        self.runs += 1
        checkout = self.place / f"run-{self.runs}"
        subprocess.run(["git", "clone", "--quiet", self.repository, checkout], check=True)
        site, summary = self.place / f"site-{self.runs}", checkout.with_suffix(".md")
        summary.touch()
        environment = {
            **os.environ,
            **{name: str(value) for name, value in WORKFLOW["env"].items()},
            "RUN": SMALL,
            "SITE": str(site),
            "GITHUB_STEP_SUMMARY": str(summary),
            "PYTHONPATH": f"{site}{os.pathsep}{ROOT}",
            "PATH": f"{self._program()}{os.pathsep}{os.environ['PATH']}",
        }
        printed = ""
        for step in WORKFLOW["jobs"]["gate"]["steps"]:
            if "if" in step and step["if"] != f"github.event_name == '{event}'":
                continue
            if "uses" in step:
                self._use(step, checkout)
                continue
            text = OFFLINE if step["name"] == "install" else step["run"]
            shell = ["bash", "-eo", "pipefail", "-c"] if "shell" in step else ["bash", "-ec"]
            done = subprocess.run([*shell, text], cwd=checkout, env=environment, capture_output=True, text=True)
            printed += done.stdout + done.stderr
            if done.returncode:
                return Ended(step["name"], summary.read_text(), printed)
        return Ended("", summary.read_text(), printed)

    def _use(self, step: dict[str, Any], checkout: Path) -> None:
        """Save or restore a cache; the other actions have nothing to do here."""
        action, given = step["uses"].partition("@")[0], step.get("with", {})
        caches = self.place / "caches"
        if action == "actions/cache/save":
            shutil.copytree(checkout / given["path"], caches / self._filled(given["key"], checkout))
        if action == "actions/cache/restore":
            found = sorted(caches.glob(f"{self._filled(given['restore-keys'], checkout)}*"))
            if found:
                shutil.copytree(found[-1], checkout / given["path"])

    def _filled(self, text: str, checkout: Path) -> str:
        """Replace the expressions of the workflow by their values."""
        values = {
            "env.REVISION": WORKFLOW["env"]["REVISION"],
            "hashFiles(env.EXPERIMENT)": hashlib.sha256((checkout / "edf.yaml").read_bytes()).hexdigest(),
            "github.run_id": f"{self.runs:04}",
        }
        return re.sub(r"\$\{\{ (.*?) \}\}", lambda found: values[found[1]], text)

    def _program(self) -> Path:
        """A folder with `rehearse`, as the environment of Rehearsal has one."""
        program = self.place / "bin" / "rehearse"
        program.parent.mkdir(exist_ok=True)
        program.write_text(f"#!{sys.executable}\nfrom reports.cli import main\nmain()\n")
        program.chmod(0o755)
        return program.parent


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Runner:
    """With a repository that holds the example's package, as somebody has it who copied that and the workflow."""
    place = tmp_path_factory.mktemp("gate")
    ignored = shutil.ignore_patterns("build", "*.egg-info", "__pycache__")
    shutil.copytree(EXAMPLES / "edf_policy", place / "repository", ignore=ignored)
    git(place / "repository", "init", "--quiet")
    commit(place / "repository")
    return Runner(place)


def git(folder: Path, *arguments: str) -> None:
    who = ["-c", "user.name=somebody", "-c", "user.email=somebody@localhost"]
    subprocess.run(["git", *who, *arguments], cwd=folder, check=True, capture_output=True)


def commit(folder: Path) -> None:
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--allow-empty", "--message", "change")


def change(runner: Runner, old: str, new: str) -> None:
    policy = runner.repository / "edf_policy" / "__init__.py"
    text = policy.read_text()
    assert old in text
    policy.write_text(text.replace(old, new))
    commit(runner.repository)


URGENCY = "return math.inf if request.due_s is None else request.due_s, request.ready_s"


@pytest.mark.slow("runs the jobs of a workflow")
def test_a_pull_request_that_makes_the_policy_worse_fails_and_is_not_kept(runner: Runner) -> None:
    first = runner.run("push")
    assert not first.failed, first.printed
    assert "No run has passed yet" in first.summary and "edf" in first.printed and "fcfs" in first.printed

    change(runner, '"""A `', '"""As of old a `')  # of which no number depends
    same = runner.run("pull_request")
    assert not same.failed and "**The gate passes**" in same.summary, same.printed

    change(runner, URGENCY, "return -math.inf if request.due_s is None else -request.due_s, -request.ready_s")
    worse = runner.run("pull_request")
    assert worse.failed == "judge" and "**The gate fails**" in worse.summary, worse.printed
    assert "scheduler=edf" in worse.summary and "**worse**" in worse.summary
    assert len(list((runner.place / "caches").iterdir())) == 1, "only what passed on main is judged against"

    pushed = runner.run("push")
    assert pushed.failed == "judge" and len(list((runner.place / "caches").iterdir())) == 1


def test_its_limits_are_of_metrics_that_can_be_judged_and_its_seeds_suffice() -> None:
    limits = parse(WORKFLOW["env"]["GATE"])
    assert len(limits) == 3 and all(definition(limit.metric).better for limit in limits)
    seeds = re.search(r"--seeds (\d+)", WORKFLOW["env"]["RUN"])
    assert seeds is not None and int(seeds[1]) >= LEAST_SEEDS
