"""The orchestrator of a speaking pipeline: it passes on one message of each source in turn, and polls cost time."""

import asyncio

import pytest

from engines.turns.orchestrator import Orchestrator
from tests.waiting import in_virtual_time


@in_virtual_time
async def test_sources_take_turns_and_a_poll_takes_as_long_as_a_message():
    """Each takes 1.5 ms. The poll at 1.2 ms is passed on from 3.0 to 4.5 ms, the one at 20 ms until 21.5 ms."""
    loop, orchestrator = asyncio.get_running_loop(), Orchestrator(0.0015)
    passed_on: list[tuple[float, str]] = []

    def message(at_ms: float, source: str, name: str) -> None:
        loop.call_at(at_ms / 1e3, orchestrator.pass_on, source, lambda: passed_on.append((1e3 * loop.time(), name)))

    message(0.0, "a", "a1")
    message(1.0, "a", "a2")
    message(1.1, "b", "b1")
    loop.call_at(0.0012, orchestrator.poll, "c")
    message(1.3, "b", "b2")
    loop.call_at(0.0200, orchestrator.poll, "c")
    message(20.5, "a", "a3")
    await asyncio.sleep(0.03)
    assert [name for _, name in passed_on] == ["a1", "b1", "a2", "b2", "a3"]
    assert [at_ms for at_ms, _ in passed_on] == pytest.approx([1.5, 3.0, 6.0, 7.5, 21.5 + 1.5])
