"""The player against its definition, its laws, and published arithmetic."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.request_tables.playback import Playback, is_continuous

# Steps of 1/64 s are exact in binary, so the laws can be asserted without tolerance.
ticks = st.integers(0, 256).map(lambda n: n / 64)
positive_ticks = st.integers(1, 256).map(lambda n: n / 64)


@st.composite
def replies(draw) -> list[tuple[float, float]]:
    """Packets of one reply as (arrival, audio seconds), in order of arrival."""
    t, packets = draw(ticks), []
    for wait, audio_s in draw(st.lists(st.tuples(ticks, positive_ticks), min_size=1, max_size=30)):
        t += wait
        packets.append((t, audio_s))
    return packets


def play(packets) -> tuple[Playback, list[float]]:
    player = Playback()
    return player, [player.arrive(t, audio_s) for t, audio_s in packets]


def vllm_omni_underrun(packets) -> float:
    """vLLM-Omni's own formula: lateness against a player that never pauses."""
    t_0, received, worst = packets[0][0], 0.0, 0.0
    for t, audio_s in packets:
        worst = max(worst, (t - t_0) - received)
        received += audio_s
    return worst


def test_playback_starts_with_the_first_packet_pauses_on_underrun_and_goes_on():
    player, gaps = play([(7.0, 1.0), (8.5, 1.0), (9.0, 1.0)])
    assert gaps == [0.0, 0.5, 0.0]
    assert (player.start_s, player.end_s, player.played(9.0)) == (7.0, 10.5, 1.5)


def test_empty_packets_neither_start_playback_nor_end_a_pause():
    player, gaps = play([(0.0, 0.0), (1.0, 0.5), (1.7, 0.0), (2.0, 0.5)])
    assert gaps == [0.0, 0.0, 0.0, 0.5]
    assert player.start_s == 1.0 and player.packets == 2


def test_published_arithmetic_of_many_slightly_late_packets():
    """20 chunks of 200 ms, 30 ms late each: 0.57 s for vLLM-Omni, 0.03 s for a player that pauses."""
    packets = [(index * 0.230, 0.200) for index in range(20)]
    player, _ = play(packets)
    assert player.underrun_fixed_s == pytest.approx(0.57)
    assert player.max_gap_s == pytest.approx(0.03)
    assert is_continuous(player.max_gap_s) and not is_continuous(player.underrun_fixed_s)


def test_the_bound_itself_is_continuous_whatever_the_rounding():
    for start_s in (0.0, 0.1, 1 / 3, 1e4):
        player, _ = play([(start_s, 0.32), (start_s + 0.32 + 0.1, 2.0)])
        assert is_continuous(player.max_gap_s)
    assert not is_continuous(0.1001) and not is_continuous(math.nan)


@given(replies())
def test_gaps_fill_the_time_that_is_not_audio_and_are_within_the_underrun_of_vllm_omni(packets):
    player, gaps = play(packets)
    assert sum(gaps) == player.end_s - player.start_s - player.total_s
    assert max(gaps) == player.max_gap_s <= player.underrun_fixed_s
    assert player.underrun_fixed_s == vllm_omni_underrun(packets)


def test_time_cannot_go_back():
    player, _ = play([(1.0, 0.5)])
    with pytest.raises(ValueError, match="before the previous"):
        player.arrive(0.5, 0.5)
    with pytest.raises(ValueError, match="before the latest"):
        player.played(0.5)
