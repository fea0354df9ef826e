"""BurstGPT's CSV, so that tools which replay BurstGPT replay our traces.

Two layouts: 6 columns as in BurstGPT_1, which most tools read (vLLM's benchmark by position, GPT-4 rows
only), and 8 columns with session ids as in BurstGPT_3. Request tokens include the conversation so far.
`Elapsed time` stays empty: how long a reply takes is the server's to say.
"""

from pathlib import Path

import numpy as np

from workloads.formats.text import write_lines
from workloads.trace import Trace
from workloads.transforms.nominal import nominal

MODEL = "GPT-4"
LOG_TYPE = "Conversation log"


def write(trace: Trace, path: str | Path, sessions: bool) -> None:
    """Write a row per turn in order of time; turns that only follow a pause get their nominal time.

    `sessions` adds the columns Session ID and Elapsed time.
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
