"""How fast a replay is, and how close it comes to the cost of vLLM's own decisions.

    python -m tests.perf.replays [--mooncake FILE]

Each line is one replay in a fresh process, one at a time. Building the server is left out. `speed` is simulated seconds
per CPU second; a step is one step of one stage replica; tokens are text tokens and codec frames of all stages. `bound`
is the speed if only vLLM's own `schedule` and `update_from_output` were left, in the rounds in which it is asked.

Then, of one load, the time by category, as a profiler sees it: it slows down a call more than the work inside it.
"""

from __future__ import annotations

import argparse
import pstats
import subprocess
import sys
import tempfile
from collections import Counter
from typing import Any

from tests.perf import pairs

PROFILED = "128"
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
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    arguments.add_argument("--mooncake", help="Mooncake's conversation trace; without it that load is left out")
    given = arguments.parse_args()
    columns = "simulated s", "CPU s", "speed", "us/step", "us/token", "bound", "bound/speed", "memory MB"
    print(f"{'load':<12}{'engine':<14}" + "".join(f"{name:>12}" for name in columns))
    extra = ["--mooncake", given.mooncake] if given.mooncake else []
    failures = 0
    for load, (engines, *_) in pairs.LOADS.items():
        if load == "mooncake" and given.mooncake is None:
            continue
        for engine in engines:
            line = f"{load:<12}{engine:<14}"
            try:
                done = pairs.replayed(pairs.HERE, load, engine, *extra)
            except subprocess.CalledProcessError:
                failures += 1
                print(f"{line}  failed", flush=True)
                continue
            speed, bound = (done["simulated_s"] / done[name] for name in ("cpu_s", "vllm_s"))
            step_us, token_us = (1e6 * done["cpu_s"] / done[name] for name in ("steps", "tokens"))
            print(
                f"{line}{done['simulated_s']:>12.0f}{done['cpu_s']:>12.1f}{speed:>12.0f}{step_us:>12.0f}"
                f"{token_us:>12.1f}{bound:>12.0f}{bound / speed:>12.1f}{done['memory_mb']:>12.0f}",
                flush=True,
            )
    print(f"\nload {PROFILED}, by category, of the profiled time")
    shares = {engine: by_category(PROFILED, engine) for engine in pairs.LOADS[PROFILED][0]}
    print(f"{'':<23}" + "".join(f"{engine:>14}" for engine in shares))
    for category in dict.fromkeys(name for share in shares.values() for name in share):
        print(f"{category:<23}" + "".join(f"{share[category]:>14.0%}" for share in shares.values()))
    return 1 if failures else 0


def by_category(load: str, engine: str) -> Counter[str]:
    """Return shares of a replay's time, largest first. A built-in function counts as its caller."""
    with tempfile.NamedTemporaryFile() as file:
        pairs.replayed(pairs.HERE, load, engine, "--profile", file.name)
        stats: dict[Any, Any] = pstats.Stats(file.name).stats  # type: ignore[attr-defined]
    shares: Counter[str] = Counter()
    for (path, _, _), (_, _, own_s, _, callers) in stats.items():
        if path == "~":
            for (caller, _, _), (_, _, called_s, _) in callers.items():
                shares[_category(caller)] += called_s
        else:
            shares[_category(path)] += own_s
    whole = sum(shares.values())
    return Counter({name: seconds / whole for name, seconds in shares.most_common()})


def _category(path: str) -> str:
    return next((name for name, part in CATEGORIES if part in path), "other")


if __name__ == "__main__":
    sys.exit(main())
