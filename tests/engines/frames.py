"""Interaction sessions for tests: replays of frames, and a device whose steps cost what a formula says."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from engines.builder import Serving
from engines.devices.roofline import StepCost
from engines.devices.stage import VirtualStage
from harness.replays.worker.replay import Replay
from tests.builders import turn
from tests.engines.replays import replay
from workloads.distributions.speech import audio_tokens
from workloads.trace import Trace, Turn

DEPLOYMENT = "qwen3_omni_pro6000"
"""Its thinker: 32,500 blocks of 16 tokens; 26 + 2 tokens of audio in 2 s."""

NETWORK_S = 0.001


class Formula(VirtualStage):
    """Steps of 4 ms + 4 us a prefill token + 60 us a request, and no encoder, as in specification 3.3."""

    def _layer_cost(self, rows, work, noise, quiet):
        prefill = sum(row.tokens for row in rows if row.tokens > 1 or not row.samples)
        return StepCost(0.004 + 4e-6 * prefill + 60e-6 * (len(rows) + quiet.requests), 0.0, 0, 0.0)


@dataclass
class Calls:
    """A run of interaction sessions, and its server as it was left."""

    replay: Replay
    events: pd.DataFrame
    steps: pd.DataFrame
    server: Serving

    @property
    def counters(self) -> dict[str, int]:
        return self.replay.counters

    def kind(self, name: str) -> pd.DataFrame:
        """Events of one kind."""
        return self.events.loc[self.events["kind"] == name]

    @property
    def ticks(self) -> pd.DataFrame:
        """Of each Step: t (dispatch, s), due, latency (s), cut."""
        begun, ended = self.kind("tick").set_index("turn"), self.kind("tick_end").set_index("turn")
        latency = ended["t"] - begun["t"]
        return pd.DataFrame({"t": begun["t"], "due": begun["value"], "latency": latency, "cut": ended["value"]})

    def returned(self, session: int) -> pd.DataFrame:
        """What each Step returned to a session: t (s), frame, tokens, latency (s)."""
        out = self.kind("frame_out")
        out = out.loc[out["session"] == session]
        dispatched = np.sort(self.kind("tick")["t"].to_numpy())
        t = out["t"].to_numpy()
        latency = t - dispatched[np.searchsorted(dispatched, t, side="right") - 1]
        return pd.DataFrame(
            {"t": t, "frame": out["turn"].to_numpy(), "tokens": out["value"].to_numpy(), "latency": latency}
        )

    def occupancy(self, at_s: float) -> float:
        """Share of the pool that is in use."""
        row = int(np.flatnonzero(self.steps["t_s"] + self.steps["dt_s"] <= at_s)[-1])
        return float(self.steps["kv_used"].iloc[row] / self.steps["kv_blocks"].iloc[row])

    def silent(self, at_s: float, steps: int = 3) -> int:
        """Sessions that the last `steps` Steps before `at_s` gave nothing."""
        out = self.kind("frame_out")
        latest = out.loc[out["t"] <= at_s].groupby("session").tail(steps)
        return int((latest.groupby("session")["value"].sum() == 0).sum())


def frames(
    sessions: int,
    count: int,
    outputs: int | Callable[[int, int], int] = 5,
    frame_s: float = 2.0,
    apart_s: float = 0.0,
    content: Callable[[int, int], int | None] = lambda session, frame: None,
) -> Trace:
    """Sessions of `count` frames each, `apart_s` after one another."""
    [input_tokens] = audio_tokens(np.array([frame_s])).tolist()

    def frame(session: int, index: int) -> Turn:
        return turn(
            session,
            index,
            arrival_s=round(session * apart_s + index * frame_s, 6),
            input_tokens=input_tokens,
            audio_s=frame_s,
            output_tokens=outputs(session, index) if callable(outputs) else outputs,
            reply_audio_s=None,
            think_s=None,
            network_s=NETWORK_S,
            content=content(session, index),
        )

    turns = [frame(session, index) for session in range(sessions) for index in range(count)]
    return Trace.from_turns(turns, generator="metronome")


def serve(
    trace: Trace,
    engine: str = "vllm_realtime",
    device: str = "virtual",
    formula: bool = True,
    arrange: Callable[[Serving], None] | None = None,
    server: dict[str, Any] | None = None,
    seed: int = 0,
    **params: Any,
) -> Calls:
    """Play `trace` against a fresh server of `engine` with these `params`."""
    built: list[Serving] = []

    def watch(frame_server: Serving) -> None:
        built.append(frame_server)
        if formula:
            for replica in frame_server.engines:
                assert isinstance(replica.device, VirtualStage)
                replica.device.__class__ = Formula
        if arrange is not None:
            arrange(frame_server)

    run = replay(
        engine, params, {"deployment": DEPLOYMENT, **(server or {})}, {}, trace, seed, device=device, arrange=watch
    )
    return Calls(run, run.events.to_pandas(), run.steps.to_pandas(), built[0])
