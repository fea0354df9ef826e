"""Reference runs of specification 3.3 on vLLM's scheduler: when a KV pool collapses, and the plateau of a window.

Steps cost 4 ms + 4 us a prefill token + 60 us a request. The first frame is fed 4 s into a call, 2 s later than in the
specification, where arrivals need no gateway.
"""

import random

import pytest

from tests.engines.frames import Calls, frames, serve

pytestmark = pytest.mark.slow("replays calls until latency collapses")

POOL = {"kv_pool_blocks": 2000}
SMALL = {"server": POOL, "step_rpc_s": 0.0}


def wall_s(run: Calls) -> float:
    """Dispatch of the first Step that was cut at the cap on its wait."""
    ticks = run.ticks
    return float(ticks.loc[ticks["cut"] == 1, "t"].to_numpy()[0])


def running(run: Calls, at_s: float) -> int:
    return int(run.steps.loc[run.steps["t_s"] <= at_s, "running"].iloc[-1])


def never_empty(run: Calls) -> bool:
    return bool((run.kind("frame_out")["value"] > 0).all())


@pytest.fixture(scope="module")
def collapsed() -> Calls:
    return serve(frames(128, 100), template_tokens=22, feed_s=0.0, step_rpc_s=0.0)


def test_input_that_fills_the_pool_stalls_everybody_at_once(collapsed: Calls):
    """N = 128, 50 in and 5 out: linear to 1.000 at about 150 s, running 0, next to no preemptions, all silent."""
    first, second, third = (collapsed.occupancy(at_s) for at_s in (41.9, 81.9, 121.9))
    assert second - first == pytest.approx(third - second, rel=0.02)
    assert (third - first) / 80.0 == pytest.approx(128 * 54 / 2.0 / (32_499 * 16), rel=0.02)
    assert wall_s(collapsed) == pytest.approx(154.0, abs=4.0)
    assert len(collapsed.kind("preempt")) <= 2
    for at_s in (170.0, 200.0):
        assert collapsed.occupancy(at_s) == pytest.approx(1.0, abs=1e-3)
        assert (running(collapsed, at_s), collapsed.silent(at_s)) == (0, 128)


def test_no_step_is_late_before_every_session_is_silent(collapsed: Calls):
    """Until the wall Steps take less than 50 ms; then each waits for the cap of 1.6 s and returns no token."""
    ticks, wall, out = collapsed.ticks, wall_s(collapsed), collapsed.kind("frame_out")
    assert ticks.loc[ticks["t"] < wall, "latency"].iloc[1:].max() < 0.05
    assert ticks.loc[ticks["t"] > wall + 2.0, "latency"].iloc[:-1].to_numpy() == pytest.approx(1.6)
    assert out.loc[out["t"] > wall + 8.0, "value"].sum() == 0


def test_spread_arrivals_stall_a_small_pool():
    """N = 32, P = 2000, 28 in and 27 out: 1.000 at 46 s, all 32 silent by 58 s after 2 preemptions."""
    run = serve(frames(32, 35, outputs=27), feed_s=0.04, **SMALL)
    assert run.occupancy(46.0) == pytest.approx(1.0, abs=1e-3)
    assert run.silent(60.0) == 32
    assert running(run, 60.0) == 0
    assert len(run.kind("preempt")) <= 4


def test_simultaneous_arrivals_silence_one_session_after_the_other():
    """The same load at once: sessions are preempted while others run on; 22 of 32 are silent at 118 s."""
    run = serve(frames(32, 60, outputs=27), feed_s=0.0, **SMALL)
    silent = [run.silent(at_s) for at_s in (58.0, 80.0, 118.0)]
    assert silent[0] < silent[1] < silent[2]
    assert silent[2] == pytest.approx(22, abs=3)
    assert running(run, 118.0) > 0
    assert len(run.kind("preempt")) > 15
    assert 0.9 < run.occupancy(118.0) <= 1.0


def test_sessions_that_fit_the_pool_lose_no_frame():
    """N = 96, 28 in and 5 out: 0.875 of the pool after 300 s, and no empty frame."""
    run = serve(frames(96, 150), feed_s=0.0, step_rpc_s=0.0)
    assert run.occupancy(300.0) == pytest.approx(0.875, abs=0.003)
    assert run.kind("alloc_fail").empty and never_empty(run)


@pytest.mark.parametrize(("sessions", "window", "count", "plateau"), [(128, 1024, 40, 0.256), (32, 2048, 60, 0.127)])
def test_a_window_leaves_a_plateau(sessions: int, window: int, count: int, plateau: float):
    """25.6 % at N = 128 and W = 1024, 12.7 % at N = 32 and W = 2048 (Table 2), and no empty frame."""
    run = serve(frames(sessions, count, outputs=27), "metronome", window=window, step_rpc_s=0.0)
    late = [run.occupancy(2.0 * (count - 8 + k) - 0.1) for k in range(8)]
    assert sum(late) / len(late) == pytest.approx(plateau, abs=0.002)
    assert max(late) - min(late) < 0.01
    assert never_empty(run) and not run.ticks["cut"].to_numpy().any()


def test_recycling_avoids_the_wall_too():
    run = serve(frames(32, 60, outputs=27), "recycling", recycle_at=512, carry=256, **SMALL)
    assert not run.ticks["cut"].to_numpy().any()
    assert run.silent(118.0) == 0
    assert run.counters["recycles"] > 32 * 4


def test_output_that_varies_changes_the_time_of_the_wall():
    """The pool fills by the tokens of each frame (section 3): with 30 tokens at least 4 s sooner than with 20."""

    def wall_at(mean: float) -> float:
        rng = random.Random(0)
        outputs = frames(32, 60, outputs=lambda session, frame: max(1, round(rng.gauss(mean, 3))))
        return wall_s(serve(outputs, **SMALL))

    assert wall_at(30) + 4.0 < wall_at(20)
