"""A whole server among clients that misbehave in every way, and a burst: nobody who behaves loses anything."""

import asyncio
import json
import os
import signal

import numpy as np
import pandas as pd
import pytest

from harness.clocks.clock import WallClockLoop
from harness.serving import ServeConfig, ServerProcess
from tests.selftest import churn, fault_clients
from tests.waiting import run, wait_until

pytestmark = pytest.mark.slow

BURST = 300
DROPPED = fault_clients.DROPPED


@pytest.fixture(scope="module")
def server():
    config = {"engine": "liveserve", "limits": churn.LIMITS}
    with ServerProcess(ServeConfig.model_validate(config)) as server:
        yield server


@pytest.mark.parametrize("kind", fault_clients.FAULTS)
def test_each_is_answered_as_it_should_be_and_leaves_nothing(server: ServerProcess, kind: str):
    does, right = fault_clients.FAULTS[kind]

    async def main() -> str:
        try:
            return await asyncio.wait_for(does(server.url), fault_clients.PATIENCE_S)
        except OSError:
            return DROPPED

    def quiet() -> dict[str, float] | None:
        now = churn.scrape(server.metrics_url)
        left = ("sessions_open", "replies_under_way", "queue_bytes")
        alone = now["rehearsal_sockets_open"] == 1
        return now if alone and not any(now[f"rehearsal_{name}"] for name in left) else None

    assert run(main(), within_s=90) in right
    now = wait_until(quiet, 30)
    closed = sum(value for name, value in now.items() if name.startswith("rehearsal_closed_total"))
    assert now["rehearsal_sessions_total"] == closed, "every session that began has ended"


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
    assert sum(map(sum, (each.values() for each in seen.faults.values()))) >= fault_clients.AT_ONCE


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
    assert calls.failures.counts.total() == 4
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


def test_all_calls_change_between_bursts_that_are_long_enough_apart():
    begins = [0.0, 105.0, 255.0, 405.0, 555.0]
    ends = [75.0, 225.0, 375.0, 525.0, 630.0]
    assert churn.rounds(600, 30, 3) == list(zip(begins, ends, strict=True))
    assert churn.rounds(8, 3, 1) == [(0.0, 11)]


def test_the_slope_of_memory_is_a_line_through_the_churn_after_warming_up():
    def sample(t_s: float, rss_kib: float) -> churn.Sample:
        return churn.Sample(t_s, rss_kib, 10, 0, 1, 0, 0.0, 0.0)

    warm = [sample(t, 1000.0 + 50 * min(t, 200)) for t in range(0, 210, 10)]
    steady = [sample(t, 20_000 + 2 * t) for t in range(260, 660, 10)]
    seen = churn.Churn(pd.DataFrame(), {}, [*warm, *steady], calm_s=60, end_s=660, send_delay_p99_s=0)  # type: ignore[arg-type]
    line = churn.memory(seen)
    assert line.kib_per_min == pytest.approx(120)
    assert line.r_squared == pytest.approx(1)
    seen.samples = warm[:1]
    assert np.isnan(churn.memory(seen).kib_per_min)


def test_what_is_wrong_is_said():
    turns = pd.DataFrame(
        {
            "turn_end_s": [1.0, 12.0, 20.0],
            "audio_ttfp_s": [0.2, 0.3, np.nan],
            "status": ["completed", "completed", "failed"],
        }
    )
    samples = [churn.Sample(float(t), 1000.0, 10, 2, 3, 1, 0.001, 0.0) for t in range(0, 30, 2)]
    bursts = [(11.0, 13.0, {"1013": 5, "dropped": 1})]
    faults = {"sends garbage": {"error": 3, "1011": 1}}
    seen = churn.Churn(turns, churn.Counter({"closed 1006": 1}), samples, 10.0, 28.0, 0.001, bursts, faults)
    before, among, burst, everything = churn.healthy(seen)
    assert (before["turns"], among["turns"], burst["turns"], everything["turns"]) == (1, 1, 1, 3)
    assert among["failed"] == everything["failed"] == 1 and among["ttfp_p50_ms"] is None
    said = " / ".join(churn.wrong(seen))
    for what in (
        "closed 1006",
        "1 turns of healthy",
        "garbage was answered 1011",
        "1 were answered dropped",
        "2 sessions",
    ):
        assert what in said
    json.dumps(churn.healthy(seen))
