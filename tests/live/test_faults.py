"""A whole server among clients that misbehave in every way, and a burst: nobody who behaves loses anything."""

import asyncio
import os
import signal

import pytest

from harness.clocks.clock import WallClockLoop
from harness.serving import ServeConfig, ServerProcess
from tests.selftest import churn, fault_clients
from tests.waiting import run

pytestmark = pytest.mark.slow("calls in real time")

BURST = 300


def test_healthy_sessions_lose_nothing_among_all_of_them_and_a_burst():
    with ServerProcess(ServeConfig.model_validate({"engine": "liveserve", "limits": churn.LIMITS})) as server:
        seen = run(churn.churn(server, seconds=8.0, calm_s=3.0, burst=BURST, bursts=1), within_s=300)
    assert not seen.failures and "failed" not in set(seen.turns["status"])
    assert len(seen.turns) >= churn.SESSIONS
    assert not churn.wrong(seen)
    ((_, _, answers),) = seen.bursts
    assert answers.keys() <= {"hello", "1013"} and sum(answers.values()) == BURST
    assert answers["1013"] >= BURST - churn.CAP
    last = seen.samples[-1]
    assert (last.sessions, last.replies, last.sockets) == (0, 0, 1), "but for the one that asks"
    assert seen.faults.keys() == fault_clients.FAULTS.keys(), "each has done its worst"


def test_a_server_that_dies_leaves_its_turns_in_the_denominator():
    """SIGKILL: every session on line fails, and says so."""
    with (
        pytest.raises(RuntimeError, match="ended by itself"),
        ServerProcess(ServeConfig.model_validate({"engine": "liveserve"})) as server,
    ):
        calls = run(_killed(server), within_s=120)
    log = calls.log.events().to_pandas()
    turns = log[log["kind"] == "turn_start"]
    failed = log[log["kind"] == "turn_failed"]
    assert set(failed["session"]) == set(turns["session"]), "nobody's call ends without a word"
    assert len(calls.failures) == 4
    assert set(log[log["kind"] == "session_end"]["session"]) == set(turns["session"])


async def _killed(server: ServerProcess) -> churn.Calls:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, WallClockLoop)
    calls = churn.Calls(server.url, 0.0, 20.0, sessions=4)
    await calls.endpoint.prepare()
    loop.restart()
    loop.call_later(3.0, os.kill, server.pid, signal.SIGKILL)
    await calls.play()
    return calls
