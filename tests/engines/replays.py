"""Small replays for tests."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

from engines.devices.step_file import as_step_file
from engines.registry import ENGINES
from engines.server import ServerParams, resolve
from harness.client.client_params import ClientParams
from harness.replays.expand import point_of
from harness.replays.kinds import kind_of
from harness.replays.worker import replay as replays
from harness.replays.worker.replay import Replay
from workloads.registry import make_trace
from workloads.trace import Trace


@cache
def voice_trace(seed: int = 3, **params: float) -> Trace:
    return make_trace("voice", {"sessions": 10, "turns": 2.0, "p": 0.5, **params}, seed)


def cut_short(trace: Trace, after_s: float = 0.3) -> Trace:
    """The same users, but each second turn is interrupted while the server is still at work on it."""
    turns = [turn for session in trace.sessions for turn in session.turns]
    return Trace.from_turns(replace(turn, barge_in_after_s=after_s if i % 2 else None) for i, turn in enumerate(turns))


def replay(
    engine: str,
    system: Mapping[str, Any],
    server: Mapping[str, Any],
    client: Mapping[str, Any],
    trace: Trace,
    seed: int,
    device: str = "virtual",
    arrange: Callable[[Any], None] | None = None,
    profile: Mapping[str, Any] | None = None,
    folder: Path | None = None,
) -> Replay:
    """Play `trace` as it stands, under these settings."""
    given = None if profile is None else as_step_file(dict(profile), "the profile")
    point = point_of(
        trace, engine, system=system, server=server, client=client, seed=seed, device=device, profile=given
    )
    return replays.replay(point, trace, arrange, folder)


def run(
    trace: Trace, engine: str = "vllm_omni", client: dict | None = None, server: dict | None = None, **engine_params
) -> Replay:
    return replay(engine, engine_params, server or {}, client or {}, trace, seed=7)


def measured(trace: Trace, done: Replay, engine: str, server: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Requests, and metrics by name."""
    kind = kind_of(trace)
    client, deployment = ClientParams.model_validate({}), resolve(ServerParams.of(dict(server)))
    timing = kind.timing(ENGINES[engine].read({}), client, deployment, trace)
    turns, events = pd.DataFrame(trace.columns()), done.events.to_pandas()
    requests = kind.requests(turns, events, timing)
    steps = done.steps.to_pandas()
    return requests, dict(kind.metrics(turns, events, steps, requests, done.run_end_s, timing))


def moments(done: Replay, kind: str, stage: str = "thinker") -> pd.Series:
    """When each session had this first, s."""
    events = done.events.to_pandas()
    return events[(events["kind"] == kind) & (events["stage"] == stage)].groupby("session")["t"].min()


def exact(table: pa.Table) -> dict[str, bytes | list[str]]:
    """Every bit of it: a missing number is unlike itself, and its bytes are not."""
    columns = {name: table[name].to_numpy() for name in table.column_names}
    return {name: values.tolist() if values.dtype == object else values.tobytes() for name, values in columns.items()}


def left(done: Replay) -> list[Any]:
    """All that must be the same of two replays that are."""
    return [exact(done.events), exact(done.steps), done.counters, done.run_end_s]


def assert_same(one: Replay, other: Replay) -> None:
    assert left(one) == left(other)
