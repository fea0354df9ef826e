"""A file of turns that a voice agent wrote, whoever's it is."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from harness.voice_agents import livekit, pipecat
from harness.voice_agents.gap import Gap
from workloads.errors import UserError, existing_file
from workloads.files.json_file import parse, read_text


def read_gaps(path: str | Path) -> tuple[str, list[Gap]]:
    """Returns who wrote the file, and its gaps in order. UserError for a file of none, or whose parts do not sum."""
    path = existing_file(path)
    text = read_text(path)
    try:
        values = list(_values(text))
        breakdowns = [value for value in values if isinstance(value, dict) and "contributions" in value]
        if breakdowns:
            return "Pipecat", _some(path, [gap for one in breakdowns if (gap := pipecat.of_breakdown(one))])
        items = [item for value in values for item in _items(value)]
        if items:
            return "LiveKit", _some(path, list(livekit.of_items(items)))
        return "Pipecat", _some(path, list(pipecat.of_lines(text.splitlines())))
    except (KeyError, TypeError, ValueError) as error:
        said = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise UserError(
            f"{path}: a turn cannot be read, as {said}; give the file as the agent wrote it."
        ) from None


def _some(path: Path, gaps: list[Gap]) -> list[Gap]:
    if not gaps:
        raise UserError(
            f"{path} has no turn with its latency; give Pipecat's latency breakdowns (JSON, or the lines of "
            "turn_contribution_lines in its log) or LiveKit's chat history with metrics (JSON)."
        )
    return gaps


def _values(text: str) -> Iterator[Any]:
    """The JSON of the file: all of it, or of each line that is some."""
    try:
        yield parse(text)
        return
    except ValueError:
        pass
    for line in text.splitlines():
        if line.lstrip().startswith("{"):
            try:
                yield parse(line)
            except ValueError:
                continue


def _items(value: Any) -> Iterator[Mapping[str, Any]]:
    """Messages with a role and metrics, in order, wherever they stand."""
    if isinstance(value, dict):
        if "role" in value and isinstance(value.get("metrics"), dict):
            yield value
            return
        for inner in value.values():
            yield from _items(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _items(inner)
