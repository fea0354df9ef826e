"""Requests that leave a step before its end are not computed and not counted."""

import pytest

from tests.engines.replays import cut_short, run, voice_trace


@pytest.mark.parametrize("server", [{}, {"prefix_caching": True, "kv_pool_blocks": 64}])
def test_aborts_at_a_layer_waste_fewer_tokens_than_at_a_step(server: dict):
    """A request that leaves at a layer has not computed the token of its last step."""
    trace = cut_short(voice_trace(sessions=12, rate=20.0, reply_tokens=120), after_s=0.05)
    wasted = {}
    for abort_at in ("step", "layer"):
        done = run(trace, server={**server, "abort_at": abort_at, "step_noise_cv": 0.0})
        assert done.proof["kv_blocks_used_after"] == 0
        events = done.events.to_pandas()
        tokens = events.loc[events["kind"] == "abort", "value"]
        assert len(tokens) > 5
        wasted[abort_at] = tokens.sum()
    assert wasted["layer"] < wasted["step"]
