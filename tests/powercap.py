"""A folder like Linux' powercap, by its documentation, and a thread that lets its packages draw power."""

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MOST_UJ = 262_143_328_850
ZONES = {
    "intel-rapl:0": "package-0",
    "intel-rapl:0:0": "core",
    "intel-rapl:0:1": "dram",
    "intel-rapl:1": "package-1",
    "intel-rapl:2": "psys",
    "intel-rapl-mmio:0": "package-0",
}


def zones(root: Path) -> Path:
    """Made there: two packages, a part of one, memory, the platform around them, and one package by another driver."""
    for zone, name in ZONES.items():
        folder = root / zone
        folder.mkdir(parents=True)
        (folder / "name").write_text(f"{name}\n")
        (folder / "max_energy_range_uj").write_text(f"{MOST_UJ}\n")
        write(folder / "energy_uj", 7)
    return root


def write(path: Path, uj: int) -> None:
    """Whole or not at all, as a kernel's file is."""
    made = path.with_suffix(".new")
    made.write_text(f"{uj}\n")
    os.replace(made, path)


@contextmanager
def drawing(root: Path, watts: float) -> Iterator[None]:
    """The first package draws so much meanwhile."""
    ended, begun_s = threading.Event(), time.monotonic()

    def draw() -> None:
        while not ended.wait(0.02):
            write(root / "intel-rapl:0" / "energy_uj", 7 + round(1e6 * watts * (time.monotonic() - begun_s)))

    thread = threading.Thread(target=draw)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
