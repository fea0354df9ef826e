"""Steps that are as the one before: the same rows, a token further each, under the same plan.

Most steps of speech are. Each is begun from the end of the one before it, by a call of the device: the engine's task
takes no turn until a step is another one, and what can only come out as before is not worked out again.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, Protocol

from engines.core import vllm_adapter as vllm
from engines.core.device import CallingDevice, Row
from engines.core.output import Produced
from engines.core.policy import STOCK, Plan

Sampled = Sequence[list[int] | None]


class Engine(Protocol):
    """A stage replica's loop as standing steps use it, before and after each step."""

    requests: dict[str, Any]
    traffic: Any

    @property
    def has_arrivals(self) -> bool:
        """Whether something has come since it last looked."""
        ...

    def look(self) -> Plan:
        """Take in what has arrived; returns how to go on."""
        ...

    def can_run(self, plan: Plan) -> bool:
        """Whether a round could do anything."""
        ...

    def begin_as_before(self, plan: Plan, rows: Sequence[Row], start_s: float) -> None:
        """A step of these rows begins."""
        ...

    def end_standing(self, plan: Plan, rows: Sequence[Row], start_s: float, sampled: Sampled) -> None:
        """End a standing step, and take in the sampled tokens."""
        ...

    def end_as_before(self, rows: Sequence[Row], start_s: float, produced: Sequence[Produced]) -> None:
        """End a step that differs from the one before only in its time. Nothing has come in meanwhile."""
        ...


class StandingSteps:
    """The standing steps of `engine` on its `device`. `rounds` says which steps are standing ones."""

    def __init__(self, engine: Engine, rounds: vllm.LazyDecodes, device: CallingDevice) -> None:
        self._engine = engine
        self._rounds = rounds
        self._device = device
        self._plan = STOCK
        self._rows: Sequence[Row] = ()
        self._start_s = 0.0
        self._alike = False
        """Nothing has come in since the last step was written down, and that was one of these."""
        self._over: asyncio.Future[Plan] | None = None
        self._loop = asyncio.get_running_loop()

    async def run(self, plan: Plan) -> Plan:
        """All that follow, under `plan` and the plans of their time; returns that of the first other step."""
        self._alike = False
        if not self._begin(plan):
            return plan
        self._over = self._loop.create_future()
        return await self._over

    def _begin(self, plan: Plan) -> bool:
        engine = self._engine
        rows = self._rounds.as_before(plan) if engine.can_run(plan) else None
        if rows is None:
            return False
        self._plan, self._rows, self._start_s = plan, rows, self._loop.time()
        engine.begin_as_before(plan, rows, self._start_s)
        if self._alike:
            self._device.again(rows)
        else:
            self._device.start(rows, engine.requests, self._ended)
        return True

    def _ended(self, sampled: Sampled) -> None:
        over, engine = self._over, self._engine
        assert over is not None
        if over.done():  # nobody serves any more
            return
        try:
            if self._alike and not engine.has_arrivals and None not in sampled and engine.traffic is None:
                engine.end_as_before(self._rows, self._start_s, self._rounds.go_on(sampled))
            else:
                engine.end_standing(self._plan, self._rows, self._start_s, sampled)
            self._alike = not engine.has_arrivals
            plan = engine.look()
            goes_on = self._begin(plan)
        except Exception as error:
            if over.done():
                raise
            over.set_exception(error)
            return
        if (
            not goes_on and not over.done()
        ):  # as it is where who was told of a token lets nobody serve any more
            over.set_result(plan)
