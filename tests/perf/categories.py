"""The time of a replay by category, as a profiler sees it: it slows down a call more than the work inside it.

python -m tests.perf.categories
"""

from __future__ import annotations

import pstats
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
    print(f"load {PROFILED}, shares of the profiled time")
    shares = {engine: by_category(PROFILED, engine) for engine in pairs.LOADS[PROFILED][0]}
    print(f"{'':<23}" + "".join(f"{engine:>14}" for engine in shares))
    for category in dict.fromkeys(name for share in shares.values() for name in share):
        print(f"{category:<23}" + "".join(f"{share[category]:>14.0%}" for share in shares.values()))
    return 0


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
