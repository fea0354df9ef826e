"""Replicas that step together, as data-parallel attention in front of shared experts does."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from engines.core.device import NO_ROWS, Row, SummedRows
from engines.core.engine import StageEngine, sleep_until
from engines.core.request import StageRequest


class GroupDevice(Protocol):
    """Runs a step of all replicas of a group at once."""

    async def execute(
        self,
        rows: Sequence[Sequence[Row]],
        summed: Sequence[SummedRows],
        requests: Sequence[Mapping[str, StageRequest]],
    ) -> list[list[list[int]]]:
        """Run a step of all replicas; the arguments hold each replica's rows, summed rows and requests, in the group's
        order. Returns sampled ids by replica and row. A replica without rows waits with the others."""
        ...


class Lockstep:
    """Drives the replicas of a group, each with its own scheduler and KV pool: one step of all at a time.

    Each replica with work takes part in the next step, which takes as long as its slowest replica. Arrivals wait for
    its end, on idle replicas too. With one loop for all, the cost of a group of 64 grows with its requests. Steps have
    no safepoints, and no loads precede them.
    """

    def __init__(self, engines: Sequence[StageEngine], device: GroupDevice) -> None:
        self.engines = engines
        self.device = device
        for engine in engines:
            engine.path.attach(engine, in_lockstep=True)

    async def serve(self) -> None:
        while True:
            plans = [engine.poll_and_plan() for engine in self.engines]
            steps = [
                (engine, engine.schedule_step(plan))
                for engine, plan in zip(self.engines, plans, strict=True)
                if engine.can_run(plan)
            ]
            assert all(step.begin_s == step.start_s for _, step in steps), "a step waits for no load"
            tokens = {}
            if any(step.rows or step.summed.requests for _, step in steps):
                rows = {engine: step.rows for engine, step in steps}
                summed = {engine: step.summed for engine, step in steps}
                sampled = await self.device.execute(
                    [rows.get(engine, ()) for engine in self.engines],
                    [summed.get(engine, NO_ROWS) for engine in self.engines],
                    [engine.requests for engine in self.engines],
                )
                tokens = dict(zip(self.engines, sampled, strict=True))
            ended = [engine.finish_step(step, list(tokens.get(engine, ()))) for engine, step in steps]
            if not any(ended):
                times = [engine.next_s(plan) for engine, plan in zip(self.engines, plans, strict=True)]
                await sleep_until(min((at_s for at_s in times if at_s is not None), default=None), self.engines)
