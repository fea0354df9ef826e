"""The workload that replays a file, by what stands in it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from workloads.files.any_file import form_of, open_rows
from workloads.files.packed import read_packed, read_parquet
from workloads.files.sharegpt_file import TALKS
from workloads.replays.replay import without_unit
from workloads.replays.tables import COLUMNS
from workloads.trace import HEADER_KEY

_BY_COLUMNS = (
    ("file", ("schema_version",)),
    ("otel", ("resourceSpans",)),
    ("weka", ("block_size", "requests")),
    ("tracelab", ("round_index", "timing_events")),
    ("mooncake", ("input_length", "output_length", "hash_ids")),
    ("mooncake", ("input_length", "output_length", "chat_id", "parent_chat_id")),
    ("mooncake", ("session_id", "delay", "input_length", "output_length")),
    ("burstgpt", ("Timestamp", "Request tokens", "Response tokens")),
    ("sharegpt", ("conv_id", "msg_index", "n_chars")),
)
"""Workload -> the columns of its own format."""
_BEGIN, _ENTRIES = 1 << 20, 100
"""Bytes of a file, and entries in them, that say what it is. [chosen]"""


def workload_of(path: Path) -> str:
    """Return the name of the workload that replays a file: of its own format, `sharegpt` for chats without times, else
    `sessions`. UserError for a file that cannot be read."""
    if path.is_dir():
        return "weka"  # the only format of several files
    columns = _columns(path)
    own = next((name for name, needed in _BY_COLUMNS if set(needed) <= set(columns)), None)
    if own is not None:
        return own
    known = {without_unit(name)[0] for name in columns}
    timed, measured = (not known.isdisjoint(COLUMNS[role].names) for role in ("t", "input"))
    chats = not known.isdisjoint(TALKS) or {"prompt", "output_tokens"} <= known
    return "sharegpt" if chats and not (timed and measured) else "sessions"


def _columns(path: Path) -> Sequence[str]:
    """Return the names of the columns, of JSON those of the first entries."""
    form = form_of(path)
    if form == "json" and (names := _names(read_packed(path, _BEGIN).decode("utf-8-sig", "replace"))):
        return names
    if form == "parquet" and HEADER_KEY in (read_parquet(path).schema.metadata or {}):
        return ["schema_version"]
    return open_rows(path, 1, skip_bad=True).columns


def _names(text: str) -> list[str]:
    """Return the names in the first objects of JSON lines or of a list, as far as the text goes."""
    decoder, names, at = json.JSONDecoder(), dict[str, None](), 0
    for _ in range(_ENTRIES):
        at += len(text[at:]) - len(text[at:].lstrip(" \n\r\t,["))
        try:
            value, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            break
        names |= dict.fromkeys(value) if isinstance(value, dict) else {}
    return [*names]
