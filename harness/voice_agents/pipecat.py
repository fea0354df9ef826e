"""Pipecat's own account of a turn (pipecat-ai 1.14, observers/user_bot_latency_observer.py), which sums by itself.

Either the breakdowns as JSON (`LatencyBreakdown.model_dump_json()`, one a line), or the lines that
`turn_contribution_lines()` makes for a log: seconds, label, owner in brackets, and a TOTAL. In a log an owner that
begins with `config: ` is a setting, `bot` and `pipecat` are those, and others are services.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, get_args

from harness.voice_agents.gap import Gap, Owner, Part

_LINE = re.compile(r"(?:^|\s|- )(\d+\.\d{3})s  (\S.*?)\s*\[([^\[\]]+)\]\s*$")
_TOTAL = re.compile(r"(?:^|\s|- )(\d+\.\d{3})s  TOTAL( \(from client connected\))?\s*$")
_FROM_SILENCE = "user_silence"
_BY_NAME: dict[str, Owner] = {"bot": "bot", "pipecat": "pipeline"}


def of_breakdown(told: Mapping[str, Any]) -> Gap | None:
    """None for a greeting, which follows no turn. ValueError for parts that do not sum, or of no known owner."""
    if told.get("measured_from", _FROM_SILENCE) != _FROM_SILENCE:
        return None
    parts = []
    for one in told["contributions"]:
        if one["owner_kind"] not in get_args(Owner):
            raise ValueError(f"owner_kind {one['owner_kind']!r} is none of Pipecat's")
        label = one["label"] if one["owner_kind"] == "pipeline" else f"{one['label']} ({one['owner']})"
        parts.append(Part(one["owner_kind"], label, float(one["duration_secs"])))
    return Gap(float(told["total_secs"]), tuple(parts))


def of_lines(lines: Sequence[str]) -> Iterator[Gap]:
    """Returns the gaps that a log tells of, whatever else it holds. ValueError for parts that do not sum."""
    parts: list[Part] = []
    for line in lines:
        if total := _TOTAL.search(line):
            if parts and not total[2]:
                yield Gap(float(total[1]), tuple(parts))
            parts = []
        elif found := _LINE.search(line):
            seconds, label, owner = found.groups()
            kind: Owner = "setting" if owner.startswith("config: ") else _BY_NAME.get(owner, "service")
            parts.append(Part(kind, label if kind == "pipeline" else f"{label} ({owner})", float(seconds)))
