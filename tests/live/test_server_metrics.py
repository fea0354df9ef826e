"""Gaps and times to first output in the server's metrics are those that its callers hear."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.endpoint.response import PlaybackEstimate
from harness.request_tables.playback import Playback
from tests.live.calls import Caller, called

PACKETS = st.lists(st.tuples(st.floats(0, 3), st.floats(0.01, 3)), min_size=1, max_size=20)
"""Seconds since the packet before, and seconds of audio."""


@given(PACKETS, st.floats(0, 10))
def test_the_playback_estimate_equals_the_player_of_the_reports(packets: list[tuple[float, float]], later_s: float):
    estimate, player, now = PlaybackEstimate(), Playback(), 100.0
    for after_s, audio_s in packets:
        now += after_s
        assert estimate.send(audio_s, now) == pytest.approx(player.arrive(now, audio_s), abs=1e-9)
    assert estimate.longest_gap_s == pytest.approx(player.max_gap_s, abs=1e-9)
    assert estimate.played_s(now + later_s) == pytest.approx(player.played(now + later_s), abs=1e-9)


@called("liveserve")
async def test_a_cut_reply_and_a_text_reply_have_no_longest_gap(caller: Caller) -> None:
    caller.ask(output_tokens=60, reply_audio_s=20.0)
    await asyncio.sleep(2)
    caller.say("response.cancel")
    await asyncio.sleep(2)
    caller.ask(output_tokens=5, reply_audio_s=None)  # nor is one in text
    await asyncio.sleep(20)
    stats = caller.sessions.stats
    assert stats.turns == {"cancelled": 1, "completed": 1}
    assert stats.longest_gap_s.count == 0 and stats.ttfp_s.count == 1
    assert (stats.ttft_s.count, stats.token_s.count) == (1, 4)
