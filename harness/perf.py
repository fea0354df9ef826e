"""How fast a replay is: simulated seconds per wall second, and how much of the wall time is vLLM's own.

    python -m harness.perf

Each line is one point in a fresh worker, one at a time: the default deployment under spoken dialogues with 16
and with 128 callers at once. Building the server is left out. What is not vLLM's `schedule` and
`update_from_output` is the engine's policy, which a real server would run as well, and ours: clients, gateway, device
model and log.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from harness.executors.local import LocalExecutor
from harness.experiment import Experiment, Point, expand
from harness.measure import measure
from harness.record import load_record

CALLERS = {16: 48, 128: 192}
"""Callers at once, and calls in all: enough for most of the run to be at that load."""


def points() -> list[Point]:
    return [
        point
        for callers, calls in CALLERS.items()
        for point in expand(
            Experiment(
                name="perf",
                engines=["vllm_omni", "liveserve"],
                workload="voice",
                set={"c": callers, "sessions": calls, "rate": 20.0, "p": 0.3},
            )
        )
    ]


def main() -> int:
    print("engine       callers  simulated s  wall s    speed  steps/s  in vLLM  in policy")
    failures = 0
    with tempfile.TemporaryDirectory() as folder:
        executor = LocalExecutor(Path(folder), measure, jobs=1, timeout_s=900)
        for outcome in executor.run(points()):
            engine, callers = outcome.point.engine, outcome.point.params["c"]
            if outcome.status == "failed":
                failures += 1
                print(f"{engine:<12}{callers:>8}  failed: {outcome.reason}", flush=True)
                continue
            cost = load_record(outcome.folder).manifest["cost"]
            wall_s = cost["wall_s"] - cost["build_s"]
            speed, rate, vllm, policy = (
                cost[name] / wall_s for name in ("simulated_s", "steps", "vllm_s", "policy_s")
            )
            print(
                f"{engine:<12}{callers:>8}{cost['simulated_s']:>13.0f}{wall_s:>8.1f}{speed:>8.0f}x"
                f"{rate:>9.0f}{vllm:>9.0%}{policy:>11.0%}",
                flush=True,
            )
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
