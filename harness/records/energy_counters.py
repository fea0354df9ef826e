"""The energy counters of this machine: RAPL's of its processors and NVML's of its GPUs, in J since each was opened.

A parameter `power` names them: `rapl`, `rapl:FOLDER` where the kernel's folder is mounted elsewhere, `nvml`,
`nvml:INDEX` of one GPU, several joined with `+`. What cannot be read is said in one sentence, and never guessed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from workloads.errors import UserError
from workloads.optional import optional

POWERCAP = Path("/sys/class/powercap")
"""Of Linux' power-capping framework, whose documentation says what its files hold."""
COUNTED = re.compile(r"package-\d+|dram")
"""Zones that add up. `core` and `uncore` are parts of a package, and `psys` is the platform with its packages in it."""
LEAVE = "or leave power out"


class Counter(Protocol):
    """Counts energy."""

    name: str

    def joules(self) -> float:
        """J since it was opened. UserError when it cannot be read any more."""
        ...


class RaplZone:
    """One zone of `POWERCAP`: a count of µJ that begins anew behind its largest value, and so has to be read more often
    than that takes (a minute or longer)."""

    def __init__(self, folder: Path) -> None:
        self.name = f"{folder.name} {_text(folder / 'name')}"
        self._path = folder / "energy_uj"
        self._most = _whole(folder / "max_energy_range_uj")
        self._last, self._total = _whole(self._path), 0

    def joules(self) -> float:
        now = _whole(self._path)
        self._total += now - self._last if now >= self._last else now + self._most - self._last
        self._last = now
        return self._total / 1e6


class NvmlGpu:
    """One GPU by `nvmlDeviceGetTotalEnergyConsumption`: mJ since its driver was loaded, on Volta and later."""

    def __init__(self, nvml: Any, index: int) -> None:
        self._nvml, self._index = nvml, index
        try:
            self._handle = nvml.nvmlDeviceGetHandleByIndex(index)
            name = nvml.nvmlDeviceGetName(self._handle)
        except nvml.NVMLError as error:
            raise UserError(
                f"power: GPU {index} cannot be opened ({error}); name one that is there."
            ) from None
        self.name = f"gpu {index} {name.decode() if isinstance(name, bytes) else name}"
        self._first = self._read()

    def joules(self) -> float:
        return (self._read() - self._first) / 1e3

    def _read(self) -> int:
        try:
            return self._nvml.nvmlDeviceGetTotalEnergyConsumption(self._handle)
        except self._nvml.NVMLError as error:
            raise UserError(
                f"power: {self.name} does not tell its energy ({error}); GPUs since Volta do, {LEAVE}."
            ) from None


def counters(power: str, nvml: Any = None) -> list[Counter]:
    """Those that `power` names, opened. `nvml`: the module `pynvml`; imported if it is needed.

    UserError for what is no counter, is not on this machine, or may not be read.
    """
    found: list[Counter] = []
    for part in power.split("+"):
        kind, colon, which = part.partition(":")
        if bool(colon) != bool(which) or kind not in ("rapl", "nvml"):
            raise UserError(
                f"power={power}: {part!r} is no counter of energy; write rapl, rapl:FOLDER, nvml or nvml:INDEX, "
                "several joined with +."
            )
        found += _rapl(Path(which or POWERCAP)) if kind == "rapl" else _nvml(which, nvml or _pynvml())
    names = [each.name for each in found]
    if len(set(names)) < len(names):
        raise UserError(f"power={power} counts {names[-1]!r} twice; name each counter once.")
    return found


def _rapl(root: Path) -> Sequence[RaplZone]:
    """Of a machine's processors and memory; other drivers' zones, as `intel-rapl-mmio`, count the same once more."""
    zones = [zone for zone in sorted(root.glob("intel-rapl:*")) if COUNTED.fullmatch(_text(zone / "name"))]
    if not zones:
        raise UserError(
            f"power: {root} has no zone of a processor (intel-rapl:0), as in containers and most virtual machines; run "
            f"on the machine itself, name where its folder is mounted (rapl:FOLDER), {LEAVE}."
        )
    return [RaplZone(zone) for zone in zones]


def _nvml(which: str, nvml: Any) -> Sequence[NvmlGpu]:
    try:
        nvml.nvmlInit()
        count = nvml.nvmlDeviceGetCount()
    except nvml.NVMLError as error:
        raise UserError(
            f"power: NVML does not start ({error}); run where NVIDIA's driver is installed, {LEAVE}."
        ) from None
    if which and not which.isdecimal():
        raise UserError(f"power: nvml:{which} is no GPU; write its number, as nvidia-smi has it.")
    if not count:
        raise UserError(f"power: NVML finds no GPU; run where one is, {LEAVE}.")
    return [NvmlGpu(nvml, index) for index in ([int(which)] if which else range(count))]


def _pynvml() -> Any:
    return optional("pynvml", "power")


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError as error:
        raise UserError(
            f"power: {path} cannot be read ({error.strerror}); run as root or let this user read it (chmod a+r), "
            f"{LEAVE}."
        ) from None


def _whole(path: Path) -> int:
    text = _text(path)
    if not text.isdecimal():
        raise UserError(f"power: {path} holds {text!r} and no count of µJ; {LEAVE.removeprefix('or ')}.")
    return int(text)
