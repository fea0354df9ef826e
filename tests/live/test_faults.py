"""A server process among clients that misbehave in every way, in a burst of calls, and killed."""

import os
import signal

import pytest

from harness.serving import ServeConfig, ServerProcess
from tests.selftest import churn, fault_clients
from tests.waiting import run

pytestmark = pytest.mark.slow("calls in real time")

BURST = 300


def test_healthy_sessions_lose_nothing_among_misbehaving_clients_and_a_burst():
    with ServerProcess(ServeConfig.model_validate({"engine": "liveserve", "limits": churn.LIMITS})) as server:
        seen = run(churn.churn(server, seconds=8.0, calm_s=3.0, burst=BURST, bursts=1), within_s=300)
    assert not seen.failures and "failed" not in set(seen.turns["status"])
    assert len(seen.turns) >= churn.SESSIONS
    assert not churn.wrong(seen)
    ((_, _, answers),) = seen.bursts
    assert answers.keys() <= {"hello", "1013"} and sum(answers.values()) == BURST
    assert answers["1013"] >= BURST - churn.CAP
    last = seen.samples[-1]
    assert (last.sessions, last.replies, last.sockets) == (0, 0, 1), "the socket is that of the last poll"
    assert seen.faults.keys() == fault_clients.FAULTS.keys()


def test_a_server_that_is_killed_is_an_error():
    config = ServeConfig.model_validate({"engine": "liveserve"})
    with pytest.raises(RuntimeError, match="ended by itself"), ServerProcess(config) as server:
        os.kill(server.pid, signal.SIGKILL)
        os.waitid(os.P_PID, server.pid, os.WEXITED | os.WNOWAIT)  # until its last thread has ended
