"""Mooncake's JSON lines: one request a line, with the ids of its 512-token blocks to show shared prefixes.

Two requests share a block id when they share all content up to the end of that block. The content of a
trace is its sessions': a turn's prompt begins with everything its session said before, unless the trace
states another context, which then is a new prefix. A last block that is not full is another block once it
is longer.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from workloads.formats.text import write_lines
from workloads.trace import Trace
from workloads.transforms.nominal import nominal

BLOCK_TOKENS = 512


def write(trace: Trace, path: str | Path) -> None:
    """Write a line per turn in order of time; turns that only follow a pause get their nominal time."""
    write_lines(path, _lines(trace))


def _lines(trace: Trace) -> Iterator[str]:
    columns, timeline = trace.columns(), nominal(trace)
    order = np.argsort(timeline.start_s, kind="stable")
    lengths = timeline.context_tokens + columns["input_tokens"]
    prefixes = np.cumsum(~timeline.continues | (columns["turn"] == 0))
    ids: dict[tuple[int, int], int] = {}
    rows = (timeline.start_s, lengths, columns["output_tokens"], prefixes)
    for start_s, length, output, prefix in zip(*(row[order].tolist() for row in rows), strict=True):
        ends = (*range(BLOCK_TOKENS, length, BLOCK_TOKENS), length)
        request = {
            "timestamp": round(1000 * start_s),
            "input_length": length,
            "output_length": output,
            "hash_ids": [ids.setdefault((prefix, end), len(ids)) for end in ends],
        }
        yield json.dumps(request)
