"""Traces in the formats of other programs; this package reads and writes."""

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np

from workloads.atomic_file import STDOUT, write_lines
from workloads.files.any_file import form_of
from workloads.formats import jsonl
from workloads.trace import Trace
from workloads.transforms.nominal import nominal

MODEL = "GPT-4"
LOG_TYPE = "Conversation log"


def write_burstgpt(trace: Trace, path: str | Path, sessions: bool) -> None:
    """Write a row of CSV per turn in order of time; turns that only follow a pause get their nominal time.

    6 columns as in BurstGPT_1, which most tools read (vLLM's benchmark by position, GPT-4 rows only); `sessions` adds
    Session ID and Elapsed time, as in BurstGPT_3. Request tokens include the conversation so far. `Elapsed time` stays
    empty: how long a reply takes is the server's to say.
    """
    columns, timeline = trace.columns(), nominal(trace)
    order = np.argsort(timeline.start_s, kind="stable")
    times = [f"{t:.6f}".rstrip("0").rstrip(".") for t in timeline.start_s[order].tolist()]
    requests = (timeline.context_tokens + columns["input_tokens"])[order].tolist()
    responses = columns["output_tokens"][order].tolist()
    ids = [f"{session},," if sessions else "" for session in columns["session"][order].tolist()]
    extra = "Session ID,Elapsed time," if sessions else ""
    lines = [f"Timestamp,{extra}Model,Request tokens,Response tokens,Total tokens,Log Type"]
    for time, id, request, response in zip(times, ids, requests, responses, strict=True):
        lines.append(f"{time},{id}{MODEL},{request},{response},{request + response},{LOG_TYPE}")
    write_lines(path, lines)


BLOCK_TOKENS = 512


def write_mooncake(trace: Trace, path: str | Path) -> None:
    """Write a line of JSON per turn in order of time, with the ids of its 512-token blocks to show shared prefixes;
    turns that only follow a pause get their nominal time.

    Two requests share a block id when they share all content up to the end of that block. The content of a trace is its
    sessions': a turn's prompt begins with everything its session said before, unless the trace states another context,
    which then is a new prefix. A last block that is not full is another block once it is longer.
    """
    write_lines(path, _mooncake_lines(trace))


def _mooncake_lines(trace: Trace) -> Iterator[str]:
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


FORMATS: dict[str, Callable[[Trace, Path], None]] = {
    "parquet": Trace.save,
    "jsonl": jsonl.write,
    "mooncake": write_mooncake,
    "burstgpt": partial(write_burstgpt, sessions=False),
    "burstgpt-sessions": partial(write_burstgpt, sessions=True),
}
"""Name of a format -> write(trace, path)."""
ENDINGS = {
    "parquet": (".parquet",),
    "jsonl": (".jsonl",),
    "mooncake": (".jsonl", ".json"),
    "burstgpt": (".csv",),
    "burstgpt-sessions": (".csv",),
}
"""Name of a format -> how the names of its files end."""


def load_trace(path: str | Path) -> Trace:
    """Read a trace file, packed or not: JSON lines, also when its name ends in .jsonl, else Parquet; UserError if it is
    none."""
    is_lines = Path(path).suffix == ".jsonl" or form_of(path) == "json"
    return jsonl.read(path) if is_lines else Trace.load(path)


def save_trace(trace: Trace, path: str | Path) -> None:
    """Write a trace file: JSON lines when its name ends in .jsonl or is - (standard output), else Parquet."""
    path = Path(path)
    FORMATS["jsonl" if path.suffix == ".jsonl" or path == STDOUT else "parquet"](trace, path)
