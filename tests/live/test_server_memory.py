"""Memory of a server that runs for long: sessions leave nothing behind."""

import asyncio
import gc
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from vllm.v1.request import Request

from engines.core.request import StageRequest
from engines.core.vllm_adapter import eviction
from engines.core.vllm_adapter.history import History
from engines.endpoint.base_session import BaseSession
from engines.endpoint.response import Response
from engines.endpoint.server_sessions import Sessions
from engines.turns.monitor import SessionView
from engines.turns.reply import Reply
from tests.live.calls import MANUAL, Caller, play, still_open

PER_SESSION = (Request, Reply, StageRequest, SessionView, History, BaseSession, Response, Caller)


def left_behind() -> Counter[str]:
    gc.collect()
    return Counter(type(each).__name__ for each in gc.get_objects() if isinstance(each, PER_SESSION))


async def turns(sessions: Sessions, rng: random.Random) -> None:
    caller = Caller(sessions)
    caller.say("session.update", session=MANUAL)
    for _ in range(rng.randint(1, 3)):
        caller.append(np.zeros(24_000, np.int16))
        caller.say("input_audio_buffer.commit")
        hint = '{"output_tokens": 20, "reply_audio_s": 5.0}'
        caller.say("response.create", response={"metadata": {"rehearsal": hint}})
        for _ in range(rng.randint(0, 9)):
            await asyncio.sleep(rng.choice((0.001, 0.1, 0.3)))
            caller.say("rehearsal.playback", played_ms=100)
        if rng.random() < 0.4:
            caller.say("response.cancel")
        elif rng.random() < 0.3:
            break
    caller.connection.end()


async def frames(sessions: Sessions, rng: random.Random) -> None:
    caller = Caller(sessions)
    for _ in range(rng.randint(1, 4)):
        caller.append(np.zeros(48_000, np.int16))
        await asyncio.sleep(rng.choice((0, 1.0, 2.0)))
    caller.connection.end()


User = Callable[[Sessions, random.Random], Awaitable[None]]


@pytest.mark.parametrize(
    ("engine", "user", "params"),
    [("liveserve", turns, {"prefill_ahead_s": 0.3}), ("vllm_omni", turns, {}), ("recycling", frames, {})],
)
def test_no_object_of_a_session_outlives_it(engine: str, user: User, params: dict[str, Any]) -> None:
    async def script(sessions: Sessions) -> None:
        before = left_behind()
        rng = random.Random(1)
        for _ in range(4):
            await asyncio.gather(*(user(sessions, rng) for _ in range(12)))
        await asyncio.sleep(30)
        assert left_behind() - before == Counter()
        assert not still_open(sessions) and sessions.stats.replies == 0

    play(engine, script, **params)


def test_the_timings_of_evictions_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    class Queue:
        def popleft_n(self, n: int) -> list[SimpleNamespace]:
            return [SimpleNamespace(_block_hash=b"x")] * n

    monkeypatch.setattr(eviction, "KEPT", 8)
    monkeypatch.setattr(eviction.clock, "now", lambda: 0.0)
    queue, evictions = Queue(), eviction.Evictions()
    evictions.watch(queue)
    for _ in range(100):
        queue.popleft_n(1)
        assert len(evictions.seconds) <= 16
    assert evictions.counters["evict_blocks"] == 100
