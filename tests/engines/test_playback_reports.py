"""Playback that is read on demand gives the server the same reports as acks that are sent one by one."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engines.turns.gateway import Gateway
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
