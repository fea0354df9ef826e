"""Replicas that step together, as data-parallel attention in front of shared experts makes them."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Protocol

from engines.core.device import NO_ROWS, QuietRows, Row
from engines.core.engine import StageEngine
from engines.core.request import StageRequest


class GroupDevice(Protocol):
    """Runs a step of all replicas of a group at once."""

    async def execute(
        self,
        rows: Sequence[Sequence[Row]],
        quiet: Sequence[QuietRows],
        requests: Sequence[Mapping[str, StageRequest]],
    ) -> list[list[list[int]]]:
        """By replica, in the group's order, what each computes (`quiet`: beside `rows`, in sums) and its requests;
        returns sampled ids by replica and row. A replica without rows waits with the others."""
        ...


class Lockstep:
    """Drives the replicas of a group, each with its own scheduler and KV pool: one step of all at a time.

    Whoever has something to do takes part in the next step, which takes as long as the slowest needs; what comes
    meanwhile waits for its end, on idle replicas as well. One loop for all of them keeps a group of 64 as cheap as its
    requests. Steps have no safepoints, and nothing is loaded in front of them.
    """

    def __init__(self, engines: Sequence[StageEngine], device: GroupDevice) -> None:
        self.engines = engines
        self.device = device
        for engine in engines:
            engine.allow_quiet()
        self._loop = asyncio.get_running_loop()

    async def serve(self) -> None:
        """Run for ever; whoever started the task cancels it at the end of the run."""
        while True:
            plans = [engine.look() for engine in self.engines]
            rounds = [
                (engine, engine.begin(plan))
                for engine, plan in zip(self.engines, plans, strict=True)
                if engine.can_run(plan)
            ]
            assert all(round.begin_s == round.start_s for _, round in rounds), "a step waits for no load"
            tokens = {}
            if any(round.rows or round.quiet.requests for _, round in rounds):
                rows = {engine: round.rows for engine, round in rounds}
                quiet = {engine: round.quiet for engine, round in rounds}
                sampled = await self.device.execute(
                    [rows.get(engine, ()) for engine in self.engines],
                    [quiet.get(engine, NO_ROWS) for engine in self.engines],
                    [engine.requests for engine in self.engines],
                )
                tokens = dict(zip(self.engines, sampled, strict=True))
            ended = [engine.end(round, list(tokens.get(engine, ()))) for engine, round in rounds]
            if not any(ended):
                times = [engine.next_s(plan) for engine, plan in zip(self.engines, plans, strict=True)]
                await self._sleep(min((at_s for at_s in times if at_s is not None), default=None))

    async def _sleep(self, until_s: float | None) -> None:
        if any(engine.has_arrivals for engine in self.engines):
            return
        wakeup = self._loop.create_future()
        for engine in self.engines:
            engine.wake_by(wakeup)
        timer = None
        if until_s is not None:
            timer = self._loop.call_at(max(until_s, self._loop.time()), _wake, wakeup)
        await wakeup
        for engine in self.engines:
            engine.wake_by(None)
        if timer is not None:
            timer.cancel()


def _wake(wakeup: asyncio.Future[None]) -> None:
    if not wakeup.done():
        wakeup.set_result(None)
