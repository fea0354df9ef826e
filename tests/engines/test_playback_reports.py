"""Playback that is read on demand gives the server the same reports as acks that are sent one by one."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engines.turns.gateway import Gateway
from harness.client.session import Reports
from harness.request_tables.playback import Playback
from tests.engines.replays import assert_same, replay, voice_trace


@pytest.mark.slow("each example is a replay")
@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    seed=st.integers(0, 99),
    c=st.sampled_from([2, 12]),
    reply_tokens=st.sampled_from([60, 300]),
    network_ms=st.sampled_from([0.0, 5.0, 200.0]),
    ack_s=st.sampled_from([0.03, 0.1]),
)
def test_reading_playback_on_demand_equals_sending_each_ack(
    seed: int, c: int, reply_tokens: int, network_ms: float, ack_s: float
):
    """Also where listeners run dry, interrupt, or are far away."""
    trace = voice_trace(seed=seed, sessions=12, rate=20.0, reply_tokens=reply_tokens, network_ms=network_ms)
    server = {"scale": "talker.host_s=6"}  # slow: speech comes later than it is heard
    client = {"c": c, "ack_s": ack_s}
    read = replay("liveserve", {}, server, client, trace, seed=7)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Gateway, "reports", lambda *_: False)
        sent = replay("liveserve", {}, server, client, trace, seed=7)
    assert_same(read, sent)


def test_a_report_uses_the_audio_that_had_arrived_by_its_time():
    playback = Playback()
    playback.arrive(1.0, 0.25)
    reports = Reports(playback, begin_s=1.1, every_s=0.1, network_s=0.01)
    assert reports.still_s(0.0) == pytest.approx(1.3)
    assert reports.still_s(0.1) == pytest.approx(1.4)
    reports.make(1.45)
    playback.arrive(1.45, 1.0)
    assert [playing for _, _, playing in reports.read(1.55)] == [True, True, False, False, True]
    assert reports.read(1.55) == []
    reports.end(1.62)
    [(at_s, played_s, playing)] = reports.read(9.0)
    assert (at_s, played_s, playing) == (pytest.approx(1.61), pytest.approx(0.4), True)
