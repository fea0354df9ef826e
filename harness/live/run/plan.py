"""The plan of one run's load generators, written before any of them starts: nothing is drawn later.

PLAN/plan.json           target, client parameters of each shard, hash of the whole trace
PLAN/shard-I.parquet     the sessions of shard I, as `workloads.transforms.shard` deals them out
PLAN/shard-I/            output of that shard, see `harness.live.run.load_generator`
PLAN/batch/              the plan of the batch at the same time, where there is one

The start of the run is not in it: processes get it once they are ready, as an instant of CLOCK_MONOTONIC.
"""

import json
import sys
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from harness.client.client_params import ClientParams
from harness.endpoints.target import TargetParams
from workloads.errors import UserError, validate
from workloads.generators.content import recordings
from workloads.registry import serves
from workloads.trace import Trace
from workloads.transforms.shard import shard

PLAN = "plan.json"
RECORDINGS = "recordings"


class Plan(BaseModel):
    """One run, dealt out. `clients` has one entry for each shard: the sum of their `c` is that of the run."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    target: TargetParams
    clients: tuple[ClientParams, ...]
    kind: str
    """Name of the kind of its users (`harness.kinds`)."""
    trace_hash: str
    batch: bool = False
    """Documents, which go on until their load generator is stopped."""

    @property
    def shards(self) -> int:
        return len(self.clients)


def write_plan(
    folder: Path, trace: Trace, target: TargetParams, client: ClientParams, batch: bool = False
) -> Plan:
    """Deal `trace` and the `c` of a closed loop out to `target.shards` processes; write into `folder`.

    A process without a session, or with c = 0, would do nothing, so there may be fewer.
    """
    parts = shard(trace, min(target.shards, client.c or target.shards))
    counts = split_concurrency(client.c, len(parts))
    clients = tuple(client.model_copy(update={"c": c}) for c in counts)
    plan = Plan(target=target, clients=clients, kind=serves(trace), trace_hash=trace.header.hash, batch=batch)
    folder.mkdir(parents=True, exist_ok=True)
    for index, part in enumerate(parts):
        part.save(trace_of(folder, index))
    (folder / PLAN).write_text(plan.model_dump_json(indent=1) + "\n")
    return plan


def read_plan(folder: Path) -> Plan:
    """Read a plan. UserError where there is none."""
    try:
        data = json.loads((folder / PLAN).read_text())
    except (OSError, json.JSONDecodeError):
        raise UserError(f"{folder} holds no readable {PLAN}; give the folder of a plan.") from None
    return validate(Plan, data, str(folder / PLAN))


def trace_of(folder: Path, index: int) -> Path:
    """Return the file of a shard's sessions."""
    return folder / f"shard-{index}.parquet"


def shard_trace(folder: Path, index: int) -> Trace:
    """Return the sessions of one shard, with their numbers in the whole trace."""
    return Trace.load(trace_of(folder, index))


def results_of(folder: Path, index: int) -> Path:
    """Return the folder that a shard writes to."""
    return folder / f"shard-{index}"


def split_concurrency(c: int | None, shards: int) -> list[int | None]:
    """Return `c` as a sum of whole numbers, one a shard, as even as possible; None: an open loop."""
    if c is None:
        return [None] * shards
    return [c // shards + (index < c % shards) for index in range(shards)]


def recordings_of(trace: Trace) -> dict[str, bytes]:
    """Return the recordings of `trace`, by name; none where speech is synthesised or no user speaks."""
    return {name: path.read_bytes() for name, path in recordings(trace).items()}


def pack_shard(folder: Path, index: int, recorded: dict[str, bytes]) -> dict[str, Any]:
    """Return shard `index` of the plan in `folder` as one message, for a host that shares no disk with this one."""
    return {
        "index": index,
        "plan": (folder / PLAN).read_text(),
        "trace": trace_of(folder, index).read_bytes(),
        "recordings": recorded,
    }


def unpack_shard(folder: Path, data: dict[str, Any]) -> None:
    """Write the plan with this one shard to `folder`, as a load generator reads it, with its recordings."""
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


def command(folder: Path, index: int) -> list[str]:
    """Return the command line of the load generator that plays a shard of the plan in `folder`."""
    return [sys.executable, "-P", "-m", "harness.live.run.load_generator", str(folder.resolve()), str(index)]
