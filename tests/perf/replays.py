"""How fast a replay is, how its cost grows with the load, and where the time goes.

    python -m tests.perf.replays

Each line is one point in a fresh worker, one at a time. Building the server is left out. `us/token` is wall time for
each token that comes out of a stage (text tokens and codec frames alike); `in rounds` is the share of the time inside
vLLM's own scheduler and KV manager, with what lets most rows do without it; `in policy` inside the engine's policy; the
rest is ours: clients, gateway, device model, log. `memory` is what the replay itself took at most.

Then, of one load, the time by category, as a profiler sees it: it slows down calls more than what is done in them.
"""

from __future__ import annotations

import cProfile
import gc
import pstats
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from harness.executors.local import LocalExecutor
from harness.experiments.expand import expand
from harness.experiments.experiment import Experiment
from harness.experiments.point import Point
from harness.records.record import load_record
from harness.worker.measure import measure
from tests.perf import beside
from tests.perf.beside import EIGHT, VOICE

CALLS = {"deployment": "qwen3_omni_pro6000", "duration_s": 120.0}
LOADS: list[tuple[str, list[str], str, dict[str, Any]]] = [
    # Callers at once, and calls in all: enough for most of the run to be at that load.
    ("16 callers, 2 GPUs", ["vllm_omni", "liveserve"], "voice", {**VOICE, "c": 16, "sessions": 48}),
    ("128 callers, 2 GPUs", *beside.LOADS["128"]),
    ("16 callers, 8 GPUs", ["vllm_omni", "liveserve"], "voice", {**EIGHT, "c": 16, "sessions": 32}),
    ("64 callers, 8 GPUs", ["vllm_omni", "liveserve"], "voice", {**EIGHT, "c": 64, "sessions": 96}),
    ("256 callers, 8 GPUs", ["vllm_omni", "liveserve"], "voice", {**EIGHT, "c": 256, "sessions": 320}),
    ("1024 callers, 8 GPUs", *beside.LOADS["1024"]),
    ("text, 100 requests/s", *beside.LOADS["text"]),
    ("20,000 short texts", *beside.LOADS["short"]),
    *((f"{n} calls", ["metronome"], "metronome", {**CALLS, "sessions": n}) for n in (32, 128, 512)),
    ("batch of 200", *beside.LOADS["batch"]),
]
PRODUCED = ("token", "frame_out")
"""Kinds of event whose values add up to all tokens."""

PROFILED = "128 callers, 2 GPUs"

CATEGORIES = (
    ("vLLM", "site-packages/vllm/"),
    ("policy", "engines/systems/"),
    ("policy", "engines/core/view.py"),
    ("engine loop", "engines/core/"),
    ("device model", "engines/devices/"),
    ("stages and gateway", "engines/"),
    ("event log", "harness/events/log.py"),
    ("clock", "harness/clocks/clock.py"),
    ("clock", "asyncio"),
    ("clients", "harness/"),
)
"""The first that a file's path contains says where its time goes."""


def main() -> int:
    columns = (
        "load",
        "engine",
        "simulated s",
        "wall s",
        "speed",
        "steps/s",
        "us/token",
        "in rounds",
        "in policy",
    )
    print(
        f"{columns[0]:<22}{columns[1]:<14}" + "".join(f"{name:>12}" for name in (*columns[2:], "memory MB"))
    )
    points = [(load, point) for load, *_ in LOADS for point in of(load)]
    loads = {point.id: load for load, point in points}
    failures = 0
    with tempfile.TemporaryDirectory() as folder:
        executor = LocalExecutor(Path(folder), measure, jobs=1, timeout_s=900)
        for outcome in executor.run([point for _, point in points]):
            line = f"{loads[outcome.point.id]:<22}{outcome.point.engine:<14}"
            if outcome.status == "failed":
                failures += 1
                print(f"{line}  failed: {outcome.reason}", flush=True)
                continue
            record = load_record(outcome.folder)
            cost, events = record.manifest["cost"], record.table("events", columns=["kind", "value"])
            tokens = events.loc[events["kind"].isin(PRODUCED), "value"].sum()
            wall_s = cost["wall_s"] - cost["build_s"]
            speed, rate, vllm, policy = (
                cost[name] / wall_s for name in ("simulated_s", "steps", "vllm_s", "policy_s")
            )
            print(
                f"{line}{cost['simulated_s']:>12.0f}{wall_s:>12.1f}{speed:>11.0f}x{rate:>12.0f}"
                f"{1e6 * wall_s / tokens:>12.1f}{vllm:>12.0%}{policy:>12.0%}{cost['memory_mb']:>12.0f}",
                flush=True,
            )
    print(f"\n{PROFILED}, by category, of the profiled time")
    shares = {point.engine: by_category(point) for point in of(PROFILED)}
    print(f"{'':<22}" + "".join(f"{engine:>14}" for engine in shares))
    for category in dict.fromkeys(name for share in shares.values() for name in share):
        print(f"{category:<22}" + "".join(f"{share[category]:>14.0%}" for share in shares.values()))
    return 1 if failures else 0


def of(load: str) -> list[Point]:
    """The points of a load."""
    [(_, engines, workload, settings)] = [each for each in LOADS if each[0] == load]
    return expand(Experiment(name="perf", engines=engines, workload=workload, set=settings))


def by_category(point: Point) -> Counter[str]:
    """Shares of a replay's time, largest first. What is built in counts as whoever calls it."""
    from harness.worker.replay import replay

    profile = cProfile.Profile()
    replay(point, point.trace(), arrange=lambda _: profile.enable())
    profile.disable()
    gc.unfreeze()  # else libraries complain at the end about what they find left
    shares: Counter[str] = Counter()
    stats: dict[Any, Any] = pstats.Stats(profile).stats  # type: ignore[attr-defined]
    for (file, _, _), (_, _, own_s, _, callers) in stats.items():
        if file == "~":
            for (caller, _, _), (_, _, called_s, _) in callers.items():
                shares[_category(caller)] += called_s
        else:
            shares[_category(file)] += own_s
    whole = sum(shares.values())
    return Counter({name: seconds / whole for name, seconds in shares.most_common()})


def _category(file: str) -> str:
    return next((name for name, part in CATEGORIES if part in file), "other")


if __name__ == "__main__":
    sys.exit(main())
