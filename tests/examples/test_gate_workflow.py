"""`examples/gate.yml` in the repository of a user's package: its commands in their order."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from harness.metrics.vocabulary import definition
from reports.comparison.gate import LEAST_SEEDS, parse
from tests.examples.test_examples import EXAMPLES, ROOT

WORKFLOW = yaml.safe_load((EXAMPLES / "gate.yml").read_text())
STEPS = {step["name"]: step for step in WORKFLOW["jobs"]["gate"]["steps"] if "name" in step}
SMALL = "--set requests=40 --set documents=15 --set scheduler=fcfs,edf --seeds 5"
PIP = ("pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--upgrade", "--target")


class Ended(NamedTuple):
    """`failed`: the step that failed, or "" if none did."""

    failed: str
    summary: str
    printed: str


class Checkout:
    """The package of the example with its workflow. What the workflow caches stays in results/passed."""

    def __init__(self, place: Path) -> None:
        ignored = shutil.ignore_patterns("build", "*.egg-info", "__pycache__")
        self.folder = Path(shutil.copytree(EXAMPLES / "edf_policy", place / "repository", ignore=ignored))
        self.policy = self.folder / "edf_policy" / "__init__.py"
        self.summary, self.site, program = place / "summary.md", place / "site", place / "bin" / "rehearse"
        program.parent.mkdir()
        program.write_text(f"#!{sys.executable}\nfrom reports.cli import main\nmain()\n")
        program.chmod(0o755)
        paths = {
            "GITHUB_STEP_SUMMARY": str(self.summary),
            "PYTHONPATH": f"{self.site}{os.pathsep}{ROOT}",
            "PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}",
        }
        self.environment = {**os.environ, **WORKFLOW["env"], "RUN": SMALL, **paths}

    def run(self, event: str) -> Ended:
        """Install the package as it is now, then run the commands of the workflow."""
        shutil.rmtree(self.folder / "results" / "this", ignore_errors=True)
        self.summary.write_text("")
        subprocess.run([sys.executable, "-m", *PIP, self.site, self.folder], check=True, capture_output=True)
        printed = ""
        for name in ("measure", "judge", "keep"):
            step = STEPS[name]
            if "if" in step and step["if"] != f"github.event_name == '{event}'":
                continue
            shell = ["bash", "-eo", "pipefail", "-c"] if "shell" in step else ["bash", "-ec"]
            done = subprocess.run(
                [*shell, step["run"]], cwd=self.folder, env=self.environment, capture_output=True, text=True
            )
            printed += done.stdout + done.stderr
            if done.returncode:
                return Ended(name, self.summary.read_text(), printed)
        return Ended("", self.summary.read_text(), printed)

    def change(self, old: str, new: str) -> None:
        text = self.policy.read_text()
        assert old in text
        self.policy.write_text(text.replace(old, new))


URGENCY = "return math.inf if request.due_s is None else request.due_s, request.ready_s"


@pytest.mark.slow("runs the jobs of a workflow")
def test_a_pull_request_that_makes_the_policy_worse_fails_and_is_not_kept(tmp_path: Path) -> None:
    checkout = Checkout(tmp_path)
    first = checkout.run("push")
    assert not first.failed, first.printed
    assert "No run has passed yet" in first.summary
    passed = (checkout.folder / "results" / "passed" / "summary.json").read_bytes()

    checkout.change('"""A `', '"""As of old a `')  # no number depends on it
    same = checkout.run("pull_request")
    assert not same.failed and "**The gate passes**" in same.summary, same.printed

    checkout.change(URGENCY, "return -math.inf if request.due_s is None else -request.due_s, -request.ready_s")
    worse = checkout.run("push")
    assert worse.failed == "judge" and "**The gate fails**" in worse.summary, worse.printed
    assert "scheduler=edf" in worse.summary and "**worse**" in worse.summary
    assert (checkout.folder / "results" / "passed" / "summary.json").read_bytes() == passed


def test_only_a_push_to_main_is_kept_and_cached() -> None:
    kept = [step for step in WORKFLOW["jobs"]["gate"]["steps"] if "if" in step]
    assert [step.get("name", step.get("uses")) for step in kept] == ["keep", "actions/cache/save@v4"]
    assert {step["if"] for step in kept} == {"github.event_name == 'push'"}


def test_its_limits_are_of_metrics_that_can_be_judged_and_its_seeds_suffice() -> None:
    limits = parse(WORKFLOW["env"]["GATE"])
    assert len(limits) == 3 and all(definition(limit.metric).better for limit in limits)
    seeds = re.search(r"--seeds (\d+)", WORKFLOW["env"]["RUN"])
    assert seeds is not None and int(seeds[1]) >= LEAST_SEEDS
