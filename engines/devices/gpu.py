"""The NVIDIA GPUs of this machine as nvidia-smi tells them: without torch, so before anything is installed.

    python engines/devices/gpu.py    a line for each GPU and status 0; one sentence and status 2 where there is none

It imports the standard library alone: `make` runs it with the system's Python, before there is an environment.
"""

import shutil
import subprocess
import sys
from dataclasses import dataclass

_FIELDS = ("name", "memory.total", "driver_version", "compute_cap")
_LIMIT_S = 30  # [chosen] a driver that hangs is no driver; the first call after a start takes seconds


@dataclass(frozen=True)
class GpuFound:
    """One GPU; `capability` is CUDA's, such as 9.0."""

    name: str
    memory_bytes: float
    driver: str
    capability: str

    def __str__(self) -> str:
        return (
            f"{self.name}, {self.memory_bytes / 1e9:.0f} GB, compute capability {self.capability}, driver {self.driver}"
        )


def gpus() -> list[GpuFound]:
    """Return all GPUs that the driver shows; an empty list when there is no driver, or it does not answer."""
    command = shutil.which("nvidia-smi")
    if command is None:
        return []
    query = [command, f"--query-gpu={','.join(_FIELDS)}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=_LIMIT_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    rows = [[cell.strip() for cell in line.split(",")] for line in done.stdout.splitlines()]
    return [
        GpuFound(name, float(mebibytes) * 2**20 if mebibytes.isdigit() else 0.0, driver, capability)
        for name, mebibytes, driver, capability in (row for row in rows if len(row) == len(_FIELDS))
    ]


def why_none() -> str:
    """Return a sentence for a machine on which `gpus` is empty."""
    reason = "nvidia-smi shows none" if shutil.which("nvidia-smi") else "there is no nvidia-smi"
    return (
        f"device cuda needs an NVIDIA GPU with its driver, and here {reason}; use a machine that has one, "
        "or device cpu or virtual."
    )


def main() -> int:
    devices = gpus()
    for gpu in devices:
        print(gpu)
    if not devices:
        print(f"rehearse: {why_none()}", file=sys.stderr)
    return 0 if devices else 2


if __name__ == "__main__":
    sys.exit(main())
