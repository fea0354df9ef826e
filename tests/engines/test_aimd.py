"""AIMD admission on synthetic latency: where it settles, what it never does, and that it sees latency alone."""

import inspect
import math
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
"""(on line, newcomers in this tick) -> latency of old and of first frames, s."""


def settings_of(engine: str, **params):
    """An engine's parameters: what is chosen brings parameters of its own."""
    return ENGINES[engine].read(params)


def aimd(engine: str = "metronome", frame_s: float = FRAME_S, **params) -> Aimd:
    admission = component("admission", "aimd", "frames")
    return admission.make(admission.given(settings_of(engine, admission="aimd", **params).flat()).params, frame_s)


def frames(latency_s: float, count: int = 1, first: bool = False) -> list[FrameLatency]:
    return [FrameLatency(session, latency_s, first) for session in range(count)]


class Ramp:
    """Sessions that are offered at a steady rate, stay for ever and are asked for a frame each tick."""

    def __init__(self, control: Aimd, curve: Curve) -> None:
        self.control, self.curve = control, curve
        self.offered = self.admitted = self.shed = 0
        self.log: list[tuple[int, int, float]] = []

    def tick(self, arrivals: int) -> None:
        newcomers = 0
        for _ in range(arrivals):
            self.offered += 1
            if self.control.admits(self.admitted):
                self.admitted += 1
                newcomers += 1
            else:
                self.shed += 1
        old_s, first_s = self.curve(self.admitted, newcomers)
        latencies = frames(old_s, self.admitted - newcomers) + frames(first_s, newcomers, first=True)
        self.control.tick(latencies, self.admitted)
        self.log.append((self.control.cap, self.admitted, max(old_s, first_s)))

    def run(self, ticks: int, arrivals: int = 16, sessions: int = 512) -> "Ramp":
        for _ in range(ticks):
            self.tick(min(arrivals, sessions - self.offered))
        return self


def linear(touch: float) -> Curve:
    """Latency grows with sessions on line and reaches the target at `touch` of them."""
    return lambda online, newcomers: (TARGET_S * online / touch,) * 2


@settings(max_examples=20)
@given(touch=st.integers(20, 480))
def test_on_a_curve_that_grows_it_settles_near_the_touch_point(touch: int):
    """Above it by less than one slow start, as newcomers of a tick are let in before their latency is known."""
    ramp = Ramp(aimd(), linear(touch)).run(150)
    assert touch - 16 <= ramp.admitted < touch + 16
    assert ramp.shed == 512 - ramp.admitted and ramp.control.counters["touches"] >= 1


def test_where_only_newcomers_wait_one_touch_in_the_ramp_is_all_there_is():
    """Section 5.3 as we read it: old frames are flat, first frames take 2.9 ms a session; 512 offered at 8 a second."""
    ramp = Ramp(aimd(), lambda n, new: (0.005, 0.0029 * n if new else 0.005)).run(150)
    touches = [at for at, (_, _, latency_s) in enumerate(ramp.log) if latency_s >= TARGET_S]
    assert len(touches) == 1
    first_touch = ramp.log[touches[0]][1]
    assert 207 <= first_touch < 223
    # Lower caps send nobody away, and arrivals end before the cap is back
    assert ramp.admitted == first_touch
    assert ramp.shed == 512 - first_touch


def test_on_a_flat_curve_everybody_is_let_in():
    ramp = Ramp(aimd(), lambda n, new: (0.005, 0.005)).run(60)
    assert (ramp.admitted, ramp.shed, ramp.control.counters["touches"]) == (512, 0, 0)


def test_on_a_step_it_learns_of_it_too_late():
    """Flat until the pool is full, then the wall: the cap falls at the wall, with all those sessions on line."""
    ramp = Ramp(aimd(), lambda n, new: (0.005, 0.005) if n < 300 else (1.6, 1.6)).run(400)
    assert 300 <= ramp.admitted < 316
    assert ramp.control.cap < 300 and ramp.log[-1][2] == 1.6  # for ever: shedding frees nothing


@pytest.mark.parametrize("wait_scope", ["batch", "session"])
def test_steady_signal_does_not_hear_first_frames(wait_scope: str):
    """The same latencies, two controllers: only one sees that newcomers wait, though a batch returns with them."""

    def curve(online: int, newcomers: int) -> tuple[float, float]:
        first_s = 0.0029 * online
        return (first_s if newcomers and wait_scope == "batch" else 0.005), first_s

    heard, deaf = (Ramp(aimd(signal=signal, wait_scope=wait_scope), curve).run(150) for signal in ("all", "steady"))
    assert heard.admitted < 224 and deaf.admitted == 512


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


def test_target_is_a_share_of_the_frame():
    control = aimd("vllm_realtime", 1.0, target_share=0.25)
    assert control.target_s == 0.25  # and the controller is the same for unbounded state


def test_a_step_without_a_latency_that_counts_has_not_touched():
    control = aimd(signal="steady")
    control.tick(frames(1.6, 16, first=True), 16)
    control.tick([], 40)
    assert (control.cap, dict(control.counters)) == (48, {"touches": 0, "raises": 2})


LATENCIES = st.lists(
    st.builds(FrameLatency, session=st.integers(0, 9), latency_s=st.floats(0, 2), first=st.booleans()), max_size=8
)
PARAMS = st.fixed_dictionaries(
    {
        "signal": st.sampled_from(["all", "steady"]),
        "wait_scope": st.sampled_from(["batch", "session"]),
        "statistic": st.sampled_from(["p95", "max"]),
        "target_share": st.floats(0.01, 1),
        "cap_start": st.integers(1, 64),
        "slow_start": st.integers(1, 64),
        "increase": st.integers(0, 8),
        "beta": st.floats(0.01, 0.99),
        "hold_ticks": st.integers(0, 4),
    }
)


@given(params=PARAMS, steps=st.lists(st.tuples(LATENCIES, st.integers(0, 40)), max_size=60))
def test_no_history_breaks_the_rules(params: dict, steps: list[tuple[list[FrameLatency], int]]):
    """Cap at least 1; never cut below beta x min(cap, on line); raised by a parameter's step and only where it binds;
    unchanged while it holds; everybody offered is admitted or shed."""
    control = aimd(**params)
    offered = admitted = shed = hold = 0
    for latencies, arrivals in steps:
        for _ in range(arrivals):
            offered += 1
            before = admitted
            admitted, shed = (admitted + 1, shed) if control.admits(admitted) else (admitted, shed + 1)
            assert admitted == before or admitted <= control.cap
        cap, touches = control.cap, control.counters["touches"]
        control.tick(latencies, admitted)
        assert control.cap >= 1
        if hold:
            assert control.cap == cap
            hold -= 1
        elif control.counters["touches"] > touches:
            assert control.cap == max(1, math.floor(params["beta"] * min(cap, admitted)))
            hold = params["hold_ticks"]
        elif control.cap != cap:
            assert control.cap - cap in (params["slow_start"], params["increase"]) and admitted >= cap - 1
    assert admitted + shed == offered


def test_it_has_no_way_to_the_pool():
    """Trap M11: all that reaches the controller are its parameters, the frame period, latencies and a count."""
    assert list(inspect.signature(Aimd).parameters) == ["params", "frame_s"]
    assert list(inspect.signature(Aimd.tick).parameters) == ["self", "latencies", "admitted"]
    assert list(inspect.signature(Aimd.admits).parameters) == ["self", "admitted"]
    assert FrameLatency._fields == ("session", "latency_s", "first")


def test_admission_is_off_unless_asked_for():
    for engine in ("metronome", "vllm_realtime"):
        params = settings_of(engine)
        assert component("admission", params.admission, "frames").make(params, FRAME_S) is None
    assert isinstance(aimd("vllm_realtime"), Aimd)
