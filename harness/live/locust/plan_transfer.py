"""A shard of a plan as one message, so that a host plays it which shares no disk with the one that wrote the plan."""

from pathlib import Path
from typing import Any

from harness.live.run.plan import PLAN, results_of, trace_of
from workloads.generators.content import recordings
from workloads.trace import Trace

RECORDINGS = "recordings"


def recordings_of(trace: Trace) -> dict[str, bytes]:
    """The recordings that `trace` speaks with, by name; none where speech is synthesised or nobody speaks."""
    return {name: path.read_bytes() for name, path in recordings(trace).items()}


def pack_shard(folder: Path, index: int, recorded: dict[str, bytes]) -> dict[str, Any]:
    """Return the data that `unpack_shard` needs to play shard `index` of the plan in `folder`."""
    return {
        "index": index,
        "plan": (folder / PLAN).read_text(),
        "trace": trace_of(folder, index).read_bytes(),
        "recordings": recorded,
    }


def unpack_shard(folder: Path, data: dict[str, Any]) -> None:
    """The plan with this one shard in `folder`, as a load generator reads it, and its recordings beside it."""
    index = data["index"]
    results_of(folder, index).mkdir(parents=True)
    (folder / PLAN).write_text(data["plan"])
    path = trace_of(folder, index)
    path.write_bytes(data["trace"])
    if not data["recordings"]:
        return
    for name, sound in data["recordings"].items():
        recording = folder / RECORDINGS / name
        recording.parent.mkdir(parents=True, exist_ok=True)
        recording.write_bytes(sound)
    trace = Trace.load(path)
    header = trace.header
    Trace.from_columns(
        trace.columns(),
        generator=header.generator,
        params={**header.params, "path": str(folder / RECORDINGS)},
        seed=header.seed,
        streams=header.streams,
        notes=header.notes,
    ).save(path)
