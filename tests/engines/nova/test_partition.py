"""Nova's equations (1) to (5): shares of decode from profiles and under load."""

from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.devices.stage import VirtualStage
from engines.devices.virtual import VirtualGpu
from engines.server import ServerParams, resolve
from engines.systems.nova.partition import Profile, SharedTimes, decode_sms, profile
from harness.clocks.clock import run

SMS = 84


def ideal(sms: int, solo_s: float) -> SharedTimes:
    """Arithmetic by SMs, and decode of 28.9 ms with a hard knee at 30."""
    return SharedTimes(solo_s * SMS / (SMS - sms), 0.0289 * max(1.0, 30 / sms))


SHARES = range(12, 61, 2)
Weighting = Literal["time", "iterations"]
WEIGHTINGS: tuple[Weighting, ...] = ("time", "iterations")
PAIRS = [(vision, prefill) for vision in SHARES for prefill in SHARES]
IDEAL = Profile({s: ideal(s, 0.8068) for s in SHARES}, {s: ideal(s, 0.3241) for s in SHARES}, 0.8068, 0.3241, 0.0289)


def test_decode_is_at_its_least_when_four_are_pending():
    """24 - 4 * 3 = 30 - 6 * 3 = 12: the paper's hyper-parameters."""
    assert [decode_sms(m, 24, 12, 4) for m in range(6)] == [24, 24, 20, 16, 12, 12]
    assert [decode_sms(m, 30, 12, 6) for m in (1, 2, 3, 4, 9)] == [30, 24, 18, 12, 12]


def test_end_to_end_time_is_equation_1():
    """Equation (1) at (30, 30): rho is 0.713 either way, as both stages slow down alike."""
    front_s = (0.8068 + 0.3241) * SMS / 54
    for weighting in WEIGHTINGS:
        assert IDEAL.end_to_end_s(30, 30, 50, weighting) == pytest.approx(front_s + 50 * 0.0289)
    assert IDEAL.throughput(30, 30) == pytest.approx(1 / front_s)


@given(st.floats(1, 400), st.sampled_from(WEIGHTINGS))
def test_nothing_is_better_than_what_the_search_finds(outputs: float, weighting: Weighting):
    least = min(IDEAL.end_to_end_s(*pair, outputs, weighting) for pair in PAIRS)
    found = IDEAL.search(outputs, weighting)
    assert IDEAL.end_to_end_s(*found, outputs, weighting) == pytest.approx(least, abs=1e-8)


def test_the_profile_of_an_a6000_is_table_i():
    """Table I from shapes, decode below 80 ms on 12 SMs, and shares near the paper's 24 and 30 (eq. 3)."""
    made = resolve(ServerParams.of({"deployment": "cogagent_a6000"}))

    async def main() -> Profile:
        gpu = VirtualGpu(made.gpu, shared=True)
        return profile(VirtualStage(made.stages["thinker"].decoder, gpu, in_turn=True, waves=True), 12)

    found = run(main(), virtual=True)
    assert found.vision[12].decode_s < 0.080
    alone = (found.vision_s, found.prefill_s, found.decode_s)
    assert alone == pytest.approx((0.8068, 0.3241, 0.0289), rel=0.02)
    for side, alone_s in ((found.vision, found.vision_s), (found.prefill, found.prefill_s)):
        assert all(side[s].pass_s > alone_s and side[s].decode_s > found.decode_s for s in side)
        assert [side[s].pass_s for s in side] == sorted(side[s].pass_s for s in side)
        assert [side[s].decode_s for s in side] == sorted((side[s].decode_s for s in side), reverse=True)
    vision, prefill = found.search(50)
    assert vision == 24 and 24 <= prefill <= 30
    assert found.end_to_end_s(24, 30, 50) < 1.01 * found.end_to_end_s(vision, prefill, 50)
