"""Batch documents at an endpoint at the same time as its users: target, trace and client."""

import asyncio
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from harness.client.client_params import ClientParams
from harness.client.session import Client
from harness.endpoints.target import TargetParams
from harness.endpoints.text_endpoint import TextEndpoint
from harness.events.log import EventLog
from workloads.generators.batch import OfflineParams, offline
from workloads.seeds import child_seed
from workloads.trace import Trace, Turn
from workloads.transforms.combine import labelled

ONLINE, BATCH = "online", "batch"
"""The classes of a run with a batch."""
SHORTEST_S = 0.25
"""A document takes so long on average at least, so that there are enough of them. [chosen]"""
LONGEST_DRAIN_S = 300.0
"""And for so long after the users' duration. [chosen]"""


def batch_target(target: TargetParams) -> TargetParams:
    """Return the target of documents: chat completions, with one process."""
    url = target.batch_url or target.url
    changes = {"url": url, "dialect": "text", "shards": 1, "token_env": target.token_env_at(url)}
    others = {"batch_url": None, "text_url": None, "scrape": None}
    return TargetParams.model_validate({**target.model_dump(), **changes, **others})


def batch_client(target: TargetParams) -> ClientParams:
    """Return a closed loop that runs until it is stopped."""
    return ClientParams.model_validate({"c": target.batch, "playback": "none"})


def batch_trace(target: TargetParams, client: ClientParams, seed: int) -> Trace:
    """Return documents enough for the users' run; the same ones for the same seed, whatever else differs."""
    assert target.batch and client.stop_after_s is not None
    count = target.batch * math.ceil((client.stop_after_s + LONGEST_DRAIN_S) / SHORTEST_S)
    params = {"requests": count, "shape": target.document_shape, "network_ms": 0}
    drawn = offline(OfflineParams.model_validate(params), child_seed(seed, BATCH))
    columns = drawn.columns()
    for name, most in (
        ("input_tokens", target.document_input_tokens),
        ("output_tokens", target.document_output_tokens),
    ):
        columns[name] = np.minimum(columns[name], most)
    header = drawn.header
    cut = Trace.from_columns(columns, generator=header.generator, params=header.params, seed=header.seed)
    return labelled(cut, BATCH, priority=target.document_priority)


def in_class(turns: Mapping[str, Any]) -> dict[str, Any]:
    """Return the users' turns as turns of their class."""
    return {**turns, "request_class": ONLINE, "priority": 0.0}


AGAIN_S = 1.0
"""After a document that failed, before the next one takes its place: a server that refuses them would else be asked as
fast as it refuses, which its users would feel. [chosen]"""


class BatchEndpoint(TextEndpoint):
    """Chat completions of batch documents: one follows the other for as long as the run lasts.

    The number of documents is not known in advance, so requests are made while others are answered: one ahead for each
    document in flight, in order.
    """

    async def prepare(self) -> None:
        self._coming = iter(self.trace.sessions)
        self.failed: set[int] = set()
        await self.connect(self.trace.sessions[: self.target.batch])
        for _ in range(self.target.batch or 0):
            self._make_next()

    def commit(self, turn: Turn, end_s: float) -> None:
        super().commit(turn, end_s)
        self._loop.call_soon(self._make_next)  # behind requests that are due now as well

    def fail(self, turn: Turn, reason: str, at_s: float) -> None:
        super().fail(turn, reason, at_s)
        self.failed.add(turn.session)

    async def aclose(self) -> None:
        """Cut the running documents, without counting them as failed."""
        for asking in self._asking.values():
            asking.stop()
        await super().aclose()

    def _make_next(self) -> None:
        session = next(self._coming, None)
        if session is not None:
            self._ready[session.id] = self._make(session)


async def work_off(trace: Trace, endpoint: BatchEndpoint, log: EventLog, params: ClientParams) -> None:
    """Keep `params.c` documents in flight from time 0 on, until there are no more.

    They do not all start at once, as users of a closed loop do: waking that many takes tens of ms. [measured]
    """
    loop, coming = asyncio.get_running_loop(), iter(trace.sessions)

    async def place() -> None:
        await asyncio.sleep(max(0.0, -loop.time()))
        begin_s = 0.0
        for session in coming:
            await Client(session, endpoint, log, params).run(begin_s)
            if session.id in endpoint.failed:
                await asyncio.sleep(AGAIN_S)
            begin_s = loop.time()

    async with asyncio.TaskGroup() as places:
        for _ in range(params.c or 0):
            places.create_task(place(), name="document")
