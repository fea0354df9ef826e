"""One replica's loop at work, for tests."""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

from engines.core.commands import Arrival
from engines.core.engine import StageEngine
from engines.core.fast_path.batch_listeners import BatchListeners
from engines.core.fast_path.decode_batch import BatchTokens
from engines.core.fast_path.decode_fast_path import path_of
from engines.core.output import StageOutput
from engines.core.policy import Policy
from engines.core.request import StageRequest
from harness.clocks.clock import run
from harness.events.log import EventLog
from tests.engines.stage import make_replica


def request(name: str, session: int = 0, prompt: int = 32, tokens: int = 20) -> StageRequest:
    return StageRequest(name, session, 0, list(range(prompt)), tokens, first_token_id=100)


LONG_S = 60.0
"""Longer than any scenario takes."""


class HeardBatches(BatchListeners):
    """Records the tokens of decode batches: (s, request, 1)."""

    def __init__(self, heard: list[tuple[float, str, int]]) -> None:
        self._heard = heard
        self._loop = asyncio.get_running_loop()

    def accepts(self, request: StageRequest) -> bool:
        return True

    def on_batch_tokens(self, tokens: BatchTokens) -> None:
        self._heard += [(self._loop.time(), request.name, 1) for request in tokens.requests]

    def count(self, request: StageRequest, tokens: int) -> None: ...


class Bench:
    """One replica in virtual time. `tokens`: (s, request, tokens); `finished`: s by request. `fast`: on the decode fast
    path; `batches`: its listeners accept decode batches."""

    def __init__(
        self,
        on_arrival: Arrival | None = None,
        policy: Policy | None = None,
        fast: bool = False,
        batches: bool = False,
        **limits: Any,
    ) -> None:
        self.log = EventLog()
        replica = make_replica(**limits)
        self.tokens: list[tuple[float, str, int]] = []
        listeners = HeardBatches(self.tokens) if batches else None
        output = StageOutput(replica, self.log, self._token, self._finish, batch_listeners=listeners)
        path = path_of(replica, fast)
        self.engine = StageEngine(replica, output, self.log, policy, on_arrival=on_arrival, path=path)
        self.finished: dict[str, float] = {}
        self.on_token: Callable[[StageRequest], None] = lambda request: None
        self._loop = asyncio.get_running_loop()
        self._until_s = 0.0
        self.task = self._loop.create_task(self.engine.serve(), name="engine")

    def _token(self, request: StageRequest, tokens: int) -> None:
        self.tokens.append((self._loop.time(), request.name, tokens))
        self.on_token(request)

    def _finish(self, request: StageRequest) -> None:
        self.finished[request.name] = self._loop.time()

    def at(self, at_s: float, what: Callable[..., Any], *arguments: Any) -> None:
        self._until_s = max(self._until_s, at_s)
        self._loop.call_at(at_s, what, *arguments)

    async def settle(self) -> None:
        while self.engine.busy or self._loop.time() <= self._until_s:
            assert self._loop.time() < LONG_S, "it never ends"
            await asyncio.sleep(0.01)
        scheduler = self.engine.scheduler
        assert scheduler.free_blocks == scheduler.allocatable_blocks and not scheduler.requests
        self.task.cancel()

    def said(self) -> Counter[str]:
        counted: Counter[str] = Counter()
        for _, name, tokens in self.tokens:
            counted[name] += tokens
        return counted

    def events(self, kind: str) -> list[float]:
        events = self.log.events().to_pandas()
        return events.loc[events["kind"] == kind, "t"].tolist()

    def steps(self) -> list[tuple[float, float, int]]:
        """Begin (s), end (s) and requests of each step with requests."""
        steps = self.log.steps().to_pandas()
        steps = steps[steps["requests"] > 0]
        ends = steps["t_s"] + steps["dt_s"]
        return list(zip(steps["t_s"].tolist(), ends.tolist(), steps["requests"].tolist(), strict=True))


def play(main: Callable[[], Coroutine[Any, Any, Bench]]) -> Bench:
    return run(main(), virtual=True)


def played(scenario: Callable[[Bench], None], on_arrival: Arrival | None = None, **limits: Any) -> Bench:
    """A bench after all requests of `scenario` have ended."""

    async def main() -> Bench:
        bench = Bench(on_arrival, **limits)
        scenario(bench)
        await bench.settle()
        return bench

    return play(main)
