"""Interaction sessions for tests: a small client of the tick gateway, and a device whose steps cost what a formula says."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from engines.build_frames import FrameServer, build_frame_server
from engines.core import vllm_adapter
from engines.devices.roofline import StepCost
from engines.devices.stage import VirtualStage
from engines.registry import ENGINES
from engines.server import ServerParams
from harness import clock
from harness.log import EventLog
from workloads.trace import Trace, Turn

DEPLOYMENT = "qwen3_omni_pro6000"
"""Its thinker: 32,500 blocks of 16 tokens; 26 + 2 tokens of audio in 2 s."""


@dataclass
class Caller:
    """What one session was told. ``frames``: time, newest frame fed, tokens."""

    frames: list[tuple[float, int, int]] = field(default_factory=list)
    said: list[str] = field(default_factory=list)

    def accepted(self) -> None:
        self.said.append("accepted")

    def rejected(self) -> None:
        self.said.append("rejected")

    def frame(self, frame: int, tokens: int) -> None:
        self.frames.append((asyncio.get_running_loop().time(), frame, tokens))

    def failed(self, reason: str) -> None:
        self.said.append(reason)

    @property
    def tokens(self) -> list[int]:
        """Of each Step that returned to it."""
        return [tokens for _, _, tokens in self.frames]


@dataclass
class Calls:
    """A run: what callers heard, its log, and its server as it was left."""

    callers: dict[int, Caller]
    events: pd.DataFrame
    steps: pd.DataFrame
    server: FrameServer
    counters: dict[str, int]

    def kind(self, *names: str) -> pd.DataFrame:
        return self.events[self.events["kind"].isin(names)]

    @property
    def latencies(self) -> np.ndarray:
        """Of each Step, s."""
        begun = self.kind("tick").set_index("turn")["t"]
        return (self.kind("tick_end").set_index("turn")["t"] - begun).to_numpy()

    @property
    def occupancy(self) -> pd.Series:
        """Share of the pool that is in use, by the end of each step (s)."""
        ends = self.steps["t_s"] + self.steps["dt_s"]
        return pd.Series((self.steps["kv_used"] / self.steps["kv_blocks"]).to_numpy(), index=ends.to_numpy())

    def silent(self, at_s: float, frames: int = 3) -> int:
        """Sessions whose last ``frames`` Steps before ``at_s`` all returned nothing."""
        return sum(
            not any(tokens for t, _, tokens in [f for f in caller.frames if f[0] <= at_s][-frames:])
            for caller in self.callers.values()
        )


class Formula(VirtualStage):
    """Steps of 4 ms + 4 us a prefill token + 60 us a request, and no encoder, as in specification 3.3."""

    def _cost(self, rows, requests, noise):
        prefill = sum(row.tokens for row in rows if row.tokens > 1 or not row.samples)
        return StepCost(0.004 + 4e-6 * prefill + 60e-6 * len(rows), 0.0, 0, 0.0)


def frames(
    sessions: int,
    count: int,
    outputs: int | Callable[[int, int], int] = 5,
    frame_s: float = 2.0,
    apart_s: float = 0.0,
    contents: Callable[[int, int], int | None] = lambda session, frame: None,
) -> Trace:
    """Sessions of ``count`` frames each, ``apart_s`` after one another."""
    tell = outputs if callable(outputs) else lambda session, frame: outputs
    return Trace.from_turns(
        Turn(
            session=session,
            turn=frame,
            arrival_s=round(session * apart_s + frame * frame_s, 6),
            modality="audio",
            input_tokens=26,
            audio_s=frame_s,
            output_tokens=tell(session, frame),
            reply_audio_s=None,
            think_s=None,
            barge_in_after_s=None,
            history_tokens=None,
            network_s=0.001,
            content=contents(session, frame),
        )
        for session in range(sessions)
        for frame in range(count)
    )


def serve(
    trace: Trace,
    engine: str = "vllm_realtime",
    device: str = "virtual",
    arrange: Callable[[FrameServer], None] | None = None,
    formula: bool = True,
    seed: int = 0,
    server: dict[str, Any] | None = None,
    **params: Any,
) -> Calls:
    """Play ``trace`` against a fresh server of ``engine`` with these ``params``."""
    log = EventLog()
    callers = {session.id: Caller() for session in trace.sessions}

    async def main() -> FrameServer:
        loop = asyncio.get_running_loop()
        vllm_adapter.use_clock(loop.time)
        built = build_frame_server(
            engine,
            ENGINES[engine].Params(**params),
            ServerParams.model_validate({"deployment": DEPLOYMENT, **(server or {})}),
            log,
            seed,
            trace,
            device,
        )
        if formula:
            for replica in built.engines:
                assert isinstance(replica.device, VirtualStage)
                replica.device.__class__ = Formula
        if device != "virtual":
            built.warm_up()
            assert isinstance(loop, clock.WallClockLoop)
            loop.restart()
        if arrange is not None:
            arrange(built)

        async def caller(turns: Sequence[Turn]) -> None:
            gateway, session, network_s = built.gateway, turns[0].session, turns[0].network_s
            at_s = turns[0].arrival_s
            await asyncio.sleep(at_s + network_s - loop.time())
            gateway.open(session, callers[session])
            for turn in turns:
                at_s = turn.arrival_s + turn.audio_s + network_s
                await asyncio.sleep(at_s - loop.time())
                gateway.append(turn)
            await asyncio.sleep(at_s + turns[-1].audio_s - loop.time())
            gateway.close(session)

        async def everybody() -> None:
            async with asyncio.TaskGroup() as group:
                for session in trace.sessions:
                    group.create_task(caller(session.turns))
            await built.settle()

        users = asyncio.create_task(everybody())
        done, serving = await asyncio.wait({users, *built.start()}, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
        for task in serving:
            task.cancel()
        return built

    built = clock.run(main(), virtual=device == "virtual")
    counters = built.counters()
    return Calls(callers, log.events().to_pandas(), log.steps().to_pandas(), built, counters)
