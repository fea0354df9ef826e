"""How the cost of replays grows with callers, points, workers and simulated time.

    python -m tests.perf.growth FOLDER [--most 4096] [--engine vllm_omni]

Every number is from the records of `rehearse run` in FOLDER, without the building of servers. Points on 4, 8 and 16
workers are a schedule of the point times with one worker, in the order of the run: the next point starts on the first
free worker. The curves are FOLDER/growth.svg.
"""

import argparse
import heapq
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

CALLERS = (16, 64, 256, 1024, 4096)
POINTS = (1, 4, 16, 64)
WORKERS = (1, 2)
COMPUTED = (4, 8, 16)
EIGHT = "qwen3_omni_8gpu"
SMALL = {"sessions": 8, "turns": 2}
SESSIONS = (32, 128, 768)
"""Numbers of sessions of 16 callers: the last takes more than an hour of simulated time."""


def run(
    out: Path, engine: str, settings: dict[str, Any], seeds: int = 1, jobs: int = 1
) -> tuple[float, list[dict[str, float]]]:
    """Return the wall seconds of `rehearse run bench` and the costs of its points, in the order of the run. Each of its
    axes has one value."""
    asked = [f"--set={name}={value}" for name, value in {"engine": engine, "p": 0.3, "c": 4, **settings}.items()]
    program = [sys.executable, "-P", "-c", "from reports.cli import main; main()"]
    options = ["--seeds", str(seeds), "--jobs", str(jobs), "--out", str(out)]
    begun = time.monotonic()
    subprocess.run([*program, "run", "bench", *asked, *options], check=True, stdout=subprocess.DEVNULL)
    wall_s = time.monotonic() - begun
    ids = [row["point"] for row in json.loads((out / "summary.json").read_text())]
    return wall_s, [json.loads((out / "points" / id / "manifest.json").read_text())["cost"] for id in ids]


def makespan(seconds: Sequence[float], workers: int) -> float:
    """Return when the last point ends if each starts, in order, on the first free worker."""
    free = [0.0] * workers
    for each in seconds:
        heapq.heapreplace(free, free[0] + each)
    return max(free)


def callers(folder: Path, engine: str, most: int) -> list[tuple[float, float, float]]:
    """Print and return (callers, CPU s per simulated s, MB), one replay for each number of callers."""
    print("callers  simulated s    CPU s  CPU s/simulated s  us/step  memory MB")
    rows = []
    for c in (c for c in CALLERS if c <= most):
        settings = {"deployment": EIGHT, "rate": 20, "c": c, "sessions": c + c // 8}
        _, [cost] = run(folder / f"callers-{c}", engine, settings)
        cpu_s, simulated_s = cost["wall_s"] - cost["build_s"], cost["simulated_s"]
        step_us = 1e6 * cpu_s / cost["steps"]
        memory = f"{step_us:>9.0f}{cost['memory_mb']:>11.0f}"
        print(f"{c:>7}{simulated_s:>13.0f}{cpu_s:>9.1f}{cpu_s / simulated_s:>19.3f}{memory}", flush=True)
        rows.append((c, cpu_s / simulated_s, cost["memory_mb"]))
    return rows


def points(folder: Path, engine: str) -> dict[int, list[tuple[float, float]]]:
    """Print and return (points, wall s) by workers; those of `COMPUTED` from the times of points in one worker."""
    print("\npoints" + "".join(f"{f'{n} worker(s), s':>16}" for n in (*WORKERS, *COMPUTED)))
    curves: dict[int, list[tuple[float, float]]] = {}
    for seeds in POINTS:
        ran = {n: run(folder / f"points-{seeds}-{n}", engine, SMALL, seeds, n) for n in WORKERS}
        wall_s, costs = ran[1]
        seconds = [cost["wall_s"] for cost in costs]
        walls = {n: ran[n][0] for n in WORKERS}
        walls |= {n: wall_s - sum(seconds) + makespan(seconds, n) for n in COMPUTED}
        print(f"{seeds:>6}" + "".join(f"{wall:>16.1f}" for wall in walls.values()), flush=True)
        for n, wall in walls.items():
            curves.setdefault(n, []).append((seeds, wall))
    return curves


def hour(folder: Path, engine: str) -> None:
    """Print the cost of an hour of simulated time, and of its first parts."""
    print("\nsimulated s    CPU s  memory MB")
    for sessions in SESSIONS:
        _, [cost] = run(folder / f"hour-{sessions}", engine, {"c": 16, "sessions": sessions})
        cpu_s = cost["wall_s"] - cost["build_s"]
        print(f"{cost['simulated_s']:>11.0f}{cpu_s:>9.1f}{cost['memory_mb']:>11.0f}", flush=True)


def draw(path: Path, load: list[tuple[float, float, float]], walls: dict[int, list[tuple[float, float]]]) -> None:
    import matplotlib.pyplot as plt
    from matplotlib.ticker import LogFormatter, NullFormatter

    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(10, 2.8), layout="constrained")
    numbers, speeds, memory = zip(*load, strict=True)
    for axes, values, title in (
        (left, [1e3 * each for each in speeds], "CPU ms per simulated s"),
        (middle, memory, "memory, MB"),
    ):
        axes.loglog(numbers, values, "o-")
        axes.set(xlabel="callers", title=title, ylim=(None, 2 * max(values)))
    for n, curve in walls.items():
        right.loglog(*zip(*curve, strict=True), "o-" if n in WORKERS else "--", label=f"{n} workers")
    right.set(xlabel="points", title="wall, s (dashed: computed)")
    for axes, values in ((left, numbers), (middle, numbers), (right, POINTS)):
        axes.set_xticks(values, [f"{value:,}" for value in values], minor=False)
        axes.xaxis.set_minor_formatter(NullFormatter())
        for formatted in (axes.yaxis.set_major_formatter, axes.yaxis.set_minor_formatter):
            formatted(LogFormatter(minor_thresholds=(2, 0.5)))
    right.legend(fontsize="small")
    figure.savefig(path)


def main() -> int:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    arguments.add_argument("folder", type=Path)
    arguments.add_argument("--most", type=int, default=CALLERS[-1], help="largest number of callers")
    arguments.add_argument("--engine", default="vllm_omni")
    given = arguments.parse_args()
    load, walls = callers(given.folder, given.engine, given.most), points(given.folder, given.engine)
    hour(given.folder, given.engine)
    draw(given.folder / "growth.svg", load, walls)
    return 0


if __name__ == "__main__":
    sys.exit(main())
