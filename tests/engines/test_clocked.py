"""Models on a clock: what is published of them, and that a tick of all calls takes what their deployment states."""

import numpy as np
import pytest

from tests.engines import replays
from workloads.registry import make_trace

FRAMES = {"frame_s": 0.08, "duration_s": 2.0, "tokens_per_frame": 1, "run_cv": 0, "session_cv": 0, "frame_cv": 0}
AT_ONCE = {"wait_scope": "session", "wait_cap": 0.99, "step_rpc_s": 0, "feed_s": 0, "window": 3000}


@pytest.mark.parametrize("name", ["personaplex_h100", "moshi_h100"])
@pytest.mark.parametrize(("calls", "tick_s"), [(8, 0.0326), (16, 0.0450)])
def test_a_tick_of_all_calls_takes_the_published_time(name: str, calls: int, tick_s: float):
    trace = make_trace("metronome", {**FRAMES, "sessions": calls}, 0)
    server = {"deployment": name, "step_noise_cv": 0}
    ran = replays.replay("metronome", AT_ONCE, server, {}, trace, 0)
    steps = ran.steps.to_pandas()
    full = steps.loc[steps["requests"] == calls]
    assert len(full) >= 20 and np.allclose(full["dt_s"], tick_s)
    assert (full["tokens"] == calls).all()  # a position of each
