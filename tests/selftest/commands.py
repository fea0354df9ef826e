"""Commands of `rehearse` that `tests.selftest.kills` disturbs: each small, in a folder of its own, and what it leaves.

Everything but `live` runs in virtual time, so that what was measured has the same bytes each time. A live run measures
the wall clock: there the traces have, and the loads that were finished before it was disturbed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from harness.experiments.provenance import ROOT

PATIENCE_S = 600.0
"""Longer than any of the commands takes on a busy machine. [chosen]"""
_POLL_S = 0.01
_EXPERIMENT = """
name: kills
engines: [liveserve]
workload: voice
set: {sessions: 2, turns: 2}
grid: {p: [0, 0.5]}
seeds: 1
"""
CLOCK = {
    "manifest.json": "when and where a point ran, and for how long",
    "report.html": "the day, the load of the machine, and how long the points took",
    "verdict.json": "the day",
}
"""Files with facts of the wall clock, which differ from run to run."""


def running(session: int) -> set[int]:
    """The pids of a session that its first process, with this pid, began; not of those that wait to be collected."""
    found = set()
    for pid in psutil.pids():
        try:
            if os.getsid(pid) == session and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                found.add(pid)
        except (psutil.NoSuchProcess, ProcessLookupError):
            continue
    return found


def measured(out: Path) -> dict[str, bytes]:
    """The files of a results directory that hold nothing of the wall clock."""
    paths = [*out.glob("summary.json"), *out.glob("points/*/run.json"), *out.glob("points/*/*.parquet")]
    return {str(path.relative_to(out)): path.read_bytes() for path in paths}


def files(out: Path) -> dict[str, bytes]:
    """Every file of a folder, without those that wait for another name."""
    paths = [path for path in out.rglob("*") if path.is_file()]
    return {str(path.relative_to(out)): path.read_bytes() for path in paths}


def of_clock(name: str) -> bool:
    """Whether a file of this name may differ from run to run."""
    return Path(name).name in CLOCK


@dataclass
class Started:
    """A command at work, with what it prints in files next to its folder."""

    process: subprocess.Popen[bytes]
    out: Path
    log: str
    begin: float = field(default_factory=time.monotonic)

    @property
    def said(self) -> str:
        return self.out.with_name(f"{self.log}.stderr").read_text(errors="replace")

    @property
    def printed(self) -> bytes:
        return self.out.with_name(f"{self.log}.stdout").read_bytes()

    @property
    def busy_s(self) -> float:
        """Seconds of the processor that the command itself has used."""
        try:
            times = psutil.Process(self.process.pid).cpu_times()
        except psutil.NoSuchProcess:
            return float("inf")
        return times.user + times.system

    def until(self, moment: Callable[[Started], bool]) -> bool:
        """Wait for a moment; False if the command ended before it. TimeoutError after `PATIENCE_S`."""
        while not moment(self):
            if self.process.poll() is not None:
                return False
            if time.monotonic() > self.begin + PATIENCE_S:
                raise TimeoutError(f"{self.out.name}: the moment did not come")
            time.sleep(_POLL_S)
        return self.process.poll() is None

    def end(self) -> int:
        return self.process.wait(PATIENCE_S)


@dataclass(frozen=True)
class Command:
    """`words`: of the command line, for a folder of results. `again`: those that resume it. `inputs`: folders of
    results that it reads, copied into its folder first, by the name that they have there. `prints`: its answer is
    printed. `virtual`: in virtual time, so that what was measured has the same bytes each time."""

    name: str
    words: Callable[[Path], list[str]]
    again: Callable[[Path], list[str]] | None = None
    inputs: Mapping[str, Path] = field(default_factory=dict)
    prints: bool = False
    virtual: bool = True

    def prepare(self, out: Path) -> None:
        """An empty folder, or one with the inputs and without a report."""
        shutil.rmtree(out, ignore_errors=True)
        out.parent.mkdir(parents=True, exist_ok=True)
        for name, source in self.inputs.items():
            shutil.copytree(source, out / name, ignore=shutil.ignore_patterns("figures", "report.html"))

    def start(
        self, out: Path, resume: bool = False, log: str = "", environment: Mapping[str, str] | None = None
    ) -> Started:
        """Start it in a session of its own, so that all its processes can be told from others. `log`: of the files next
        to its folder, for a second one there."""
        words = (self.again or self.words)(out) if resume else self.words(out)
        stem = log or out.name
        with out.with_name(f"{stem}.stderr").open("wb") as stderr, out.with_name(f"{stem}.stdout").open("wb") as stdout:
            process = subprocess.Popen(
                [sys.executable, "-c", "from reports.cli import main; main()", *words],
                cwd=ROOT,
                env={**os.environ, **(environment or {})},
                stdout=stdout,
                stderr=stderr,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        return Started(process, out, stem)

    def result(self, ended: Started) -> dict[str, bytes]:
        """What is to be the same after a disturbance: the files of the folder, and the answer if it is printed."""
        found = {name: data for name, data in files(ended.out).items() if not of_clock(name)}
        if not self.virtual:
            found = {name: data for name, data in found.items() if name.endswith("trace.parquet")}
        return {**found, "what it prints": ended.printed} if self.prints else found


def commands(folder: Path, server: str) -> dict[str, Command]:
    """The commands by name; those that read results get them from the folders that the earlier ones leave."""
    file = folder / "kills.yaml"
    file.write_text(_EXPERIMENT)
    run = f"run {file} --jobs 1".split()
    slo = ["--slo", "continuity>=0%", "--to", "2", "--set", "p=0", "--seeds", "1", "--jobs", "1"]
    small = ["--quick", "--set", "c=8", "--set", "p=0.5", "--set", "sessions=2", "--set", "turns=2"]
    calls = f"live {server} --sessions 1,2 --duration 8 --seed 0 --set send_delay_limit_ms=100000".split()
    sweep, cards = folder / "inputs" / "sweep", folder / "inputs" / "cards"
    found = [
        Command("sweep", lambda out: [*run, "--out", str(out)]),
        Command("find", lambda out: ["find", str(file), *slo, "--out", str(out)]),
        Command(
            "live",
            lambda out: [*calls, "--out", str(out)],
            again=lambda out: [*calls, "--out", str(out), "--resume"],
            virtual=False,
        ),
        Command("report", lambda out: ["report", str(out / "run")], inputs={"run": sweep}),
        Command(
            "claims",
            lambda out: ["claims", "nova", "--csv", "--results", str(out / "cards")],
            inputs={"cards": cards},
            prints=True,
        ),
        Command(
            "compare",
            lambda out: ["compare", str(out / "run"), str(out / "run"), "--csv"],
            inputs={"run": sweep},
            prints=True,
        ),
        Command("nightly", lambda out: ["nightly", "--device", "virtual", *small, "--out", str(out)]),
        Command("inputs/sweep", lambda out: [*run, "--out", str(out)]),
        Command("inputs/cards", lambda out: ["run", "nova-fig4", "--quick", "--out", str(out)]),
    ]
    return {command.name: command for command in found}
