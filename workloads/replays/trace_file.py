"""A trace that exists already, exported, edited or recorded from a run: workload `file`."""

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from workloads.formats import load_trace
from workloads.trace import Trace


class FileParams(BaseModel):
    """Only which file: everything else is in it, interruptions and delays included."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    path: Path = Field(description="the trace file to play, .parquet or .jsonl")


def trace_file(params: FileParams, seed: int) -> Trace:
    """Return the trace of the file, the same for every seed; UserError if the file is not a trace."""
    return load_trace(params.path)
