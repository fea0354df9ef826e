"""Small replays for tests."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from harness.experiments.experiment import Point
from harness.worker import replay as replays
from harness.worker.replay import Replay
from workloads.registry import make_trace
from workloads.trace import Trace


@cache
def voice_trace(seed: int = 3, **params: float) -> Trace:
    return make_trace("voice", {"sessions": 10, "turns": 2.0, "p": 0.5, **params}, seed)


def cut_short(trace: Trace, after_s: float = 0.3) -> Trace:
    """The same users, but each second turn is interrupted while the server is still at work on it."""
    turns = [turn for session in trace.sessions for turn in session.turns]
    return Trace.from_turns(
        replace(turn, barge_in_after_s=after_s if i % 2 else None) for i, turn in enumerate(turns)
    )


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
    point = Point.of(
        trace, engine, system=system, server=server, client=client, seed=seed, device=device, profile=profile
    )
    return replays.replay(point, trace, arrange, folder)


def run(
    trace: Trace,
    engine: str = "vllm_omni",
    client: dict | None = None,
    server: dict | None = None,
    **engine_params,
) -> Replay:
    return replay(engine, engine_params, server or {}, client or {}, trace, seed=7)
