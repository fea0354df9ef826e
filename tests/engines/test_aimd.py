"""AIMD admission on synthetic latencies."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.composition import component
from engines.core.admission import FrameLatency
from engines.registry import ENGINES
from engines.systems.metronome.aimd import Aimd

FRAME_S = 2.0
TARGET_S = 0.6

Curve = Callable[[int, int], tuple[float, float]]
"""(connected sessions, new sessions of this tick) -> latency of old and of first frames, s."""


def aimd(engine: str = "metronome", frame_s: float = FRAME_S, **params) -> Aimd:
    admission = component("admission", "aimd", "frames")
    chosen = ENGINES[engine].read({"admission": "aimd", **params}).flat()
    return admission.make(admission.given(chosen).params, frame_s)


def frames(latency_s: float, count: int = 1, first: bool = False) -> list[FrameLatency]:
    return [FrameLatency(session, latency_s, first) for session in range(count)]


def ramp(control: Aimd, curve: Curve, ticks: int = 150) -> tuple[list[int], list[float]]:
    """16 sessions a tick ask for admission, 512 in all; each stays and sends a frame every tick.

    Returns the admitted sessions and the longest latency (s) by tick.
    """
    admitted, admitted_at, latency_s = 0, [], []
    for tick in range(ticks):
        newcomers = 0
        for _ in range(16 if tick < 32 else 0):
            if control.admits(admitted):
                admitted += 1
                newcomers += 1
        old_s, first_s = curve(admitted, newcomers)
        control.tick(frames(old_s, admitted - newcomers) + frames(first_s, newcomers, first=True), admitted)
        admitted_at.append(admitted)
        latency_s.append(max(old_s, first_s))
    return admitted_at, latency_s


@settings(max_examples=20)
@given(touch=st.integers(20, 480))
def test_on_a_curve_that_grows_it_settles_near_the_touch_point(touch: int):
    """Latency is 0.6 s at `touch` sessions. A tick admits at most 16 before it knows their latency."""
    control = aimd()
    admitted, _ = ramp(control, lambda online, newcomers: (TARGET_S * online / touch, TARGET_S * online / touch))
    assert touch - 16 <= admitted[-1] < touch + 16
    assert control.counters["touches"] >= 1


def test_slow_first_frames_touch_the_target_once_in_a_ramp():
    """Section 5.3: old frames take 5 ms, first frames 2.9 ms a session: 0.6 s at 207 sessions."""
    admitted, latency_s = ramp(aimd(), lambda online, newcomers: (0.005, 0.0029 * online if newcomers else 0.005))
    [touch] = [tick for tick, latency in enumerate(latency_s) if latency >= TARGET_S]
    # A lower cap ends no session, and arrivals end before the cap has risen again.
    assert 207 <= admitted[-1] == admitted[touch] < 207 + 16


def test_the_cap_falls_only_after_a_full_pool_has_stalled():
    """Latency is 5 ms below 300 sessions and 1.6 s from there on. A lower cap ends no session, so it stays 1.6 s."""
    control = aimd()
    admitted, latency_s = ramp(control, lambda online, newcomers: (0.005, 0.005) if online < 300 else (1.6, 1.6), 400)
    assert 300 <= admitted[-1] < 316
    assert control.cap < 300 and latency_s[-1] == 1.6


@pytest.mark.parametrize("wait_scope", ["batch", "session"])
def test_the_steady_signal_ignores_first_frames(wait_scope: str):
    """First frames take 2.9 ms a session; with `wait_scope=batch` old frames wait for those of their tick."""

    def curve(online: int, newcomers: int) -> tuple[float, float]:
        return 0.0029 * online if newcomers and wait_scope == "batch" else 0.005, 0.0029 * online

    every, steady = (aimd(signal=signal, wait_scope=wait_scope) for signal in ("all", "steady"))
    assert ramp(every, curve)[0][-1] < 224
    assert ramp(steady, curve)[0][-1] == 512
    assert steady.counters["touches"] == 0


@pytest.mark.parametrize(("statistic", "touched"), [("p95", False), ("max", True)])
def test_one_late_frame_of_a_hundred_touches_the_maximum_and_not_the_p95(statistic: str, touched: bool):
    control = aimd(statistic=statistic)
    control.tick([*frames(0.005, 99), FrameLatency(99, 1.0, False)], 100)
    assert bool(control.counters["touches"]) == touched


@pytest.mark.parametrize(
    ("hold_ticks", "ticks", "caps"),
    [
        (2, [(0.6, 16)], [14]),  # the target itself is a touch
        (2, [(0.599, 16)], [32]),
        (2, [(0.005, 14), (0.005, 15)], [16, 32]),  # a cap that does not bind stays
        (0, [(0.7, 16), (0.1, 16), (0.1, 16)], [14, 15, 16]),  # after the first touch it probes by one
        (2, [(0.7, 100), (0.7, 100), (0.001, 100), (0.7, 100)], [14, 14, 14, 12]),  # and holds before
    ],
)
def test_the_cap_follows_latency_and_sessions(hold_ticks: int, ticks: list[tuple[float, int]], caps: list[int]):
    control, found = aimd(hold_ticks=hold_ticks), []
    for latency_s, admitted in ticks:
        control.tick(frames(latency_s), admitted)
        found.append(control.cap)
    assert found == caps


def test_ticks_without_latencies_that_count_raise_the_cap():
    """The cap of 16 binds at 16 sessions and rises to 32, and that of 32 at 40 to 48."""
    control = aimd(signal="steady")
    control.tick(frames(1.6, 16, first=True), 16)
    control.tick([], 40)
    assert control.cap == 48 and control.counters == {"touches": 0, "raises": 2}


@pytest.mark.parametrize("engine", ["metronome", "vllm_realtime"])
def test_admission_is_off_by_default(engine: str):
    params = ENGINES[engine].read({})
    assert component("admission", params.admission, "frames").make(params, FRAME_S) is None
    assert isinstance(aimd(engine), Aimd)
