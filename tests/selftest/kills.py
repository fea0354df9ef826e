"""Runs that are killed at random moments: no process outlives them, and run again they end in the same bytes.

    python -m tests.selftest.kills FOLDER --kills 30

A run of 24 small points on two jobs, in virtual time, is let through once; each further one gets kill -9 at a moment of
that time and is run again to its end. One line a kill; the exit status is 1 where a process was still there after
`LEAVE_S`, or anything that was measured differs.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Annotated

import psutil
import typer

from harness.experiments.provenance import ROOT

LEAVE_S = 1.0
"""Within which every process is to be gone: [chosen]."""
_POLL_S = 0.01
_EXPERIMENT = """
name: kills
engines: [vllm_omni, liveserve]
workload: voice
set: {sessions: 1, turns: 1}
grid: {p: [0, 0.5]}
seeds: 6
"""


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
    paths = [*out.glob("summary.json"), *out.glob("points/*/summary.json"), *out.glob("points/*/*.parquet")]
    return {str(path.relative_to(out)): path.read_bytes() for path in paths}


def _start(out: Path) -> subprocess.Popen[bytes]:
    """`rehearse run` in a session of its own."""
    out = out.absolute()  # the command runs in another directory
    file = out.parent / "kills.yaml"
    file.write_text(_EXPERIMENT)
    run = ["run", str(file), "--jobs", "2", "--out", str(out)]
    return subprocess.Popen(
        [sys.executable, "-c", "from reports.cli import main; main()", *run],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=(out.parent / "said.txt").open("wb"),
        start_new_session=True,
    )


def _end(out: Path) -> None:
    """Run to the end; RuntimeError with what it said when that is not well."""
    if _start(out).wait() != 0:
        raise RuntimeError((out.parent / "said.txt").read_text())


def _kill(command: subprocess.Popen[bytes]) -> tuple[float, set[int]]:
    """Seconds until all of its processes were gone, at most `LEAVE_S`, and those that were still there then."""
    command.kill()
    begin = time.monotonic()
    command.wait()
    left = running(command.pid)
    while left and time.monotonic() < begin + LEAVE_S:
        time.sleep(_POLL_S)
        left = running(command.pid)
    return time.monotonic() - begin, left


def main(
    folder: Path,
    kills: Annotated[int, typer.Option(help="How many.")] = 30,
    seed: Annotated[int, typer.Option(help="Draws the moments.")] = 0,
) -> None:
    """Kill runs in FOLDER at random moments, and run each again to its end."""
    folder.mkdir(parents=True, exist_ok=True)
    whole, out, draw = folder.absolute() / "whole", folder.absolute() / "killed", random.Random(seed)
    begin = time.monotonic()
    shutil.rmtree(whole, ignore_errors=True)
    _end(whole)
    lasts_s, wanted = time.monotonic() - begin, measured(whole)
    number = bad = 0
    while number < kills:
        shutil.rmtree(out, ignore_errors=True)
        command, moment_s = _start(out), draw.uniform(0, lasts_s)
        time.sleep(moment_s)
        if command.poll() is not None:  # it was quicker than the first
            continue
        number += 1
        at_work = len(running(command.pid))
        gone_s, left = _kill(command)
        finished, half = (len(list(out.glob(f"points/{names}"))) for names in ("[!.]*", ".*"))
        _end(out)
        found = measured(out)
        differing = [name for name in wanted.keys() | found.keys() if wanted.get(name) != found.get(name)]
        differing += [str(path) for path in out.rglob(".tmp-*")]
        bad += bool(left or differing)
        said = (
            f"{len(left)} of {at_work} processes left"
            if left
            else f"{at_work} processes gone in {gone_s:.2f} s"
        )
        print(
            f"{number:2d}: killed at {moment_s:4.1f} of {lasts_s:.1f} s, {finished} points finished, {half} begun; "
            f"{said}; run again: {len(differing)} of {len(wanted)} files differ",
            *differing[:3],
            flush=True,
        )
    print(f"{kills - bad} of {kills} kills left no process behind and the same bytes")
    raise typer.Exit(1 if bad else 0)


if __name__ == "__main__":
    typer.run(main)
