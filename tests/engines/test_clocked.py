"""Models on a clock: what is published of them, and that a tick of all calls takes what their deployment states."""

import numpy as np
import pytest

from engines.devices.extensions import StatedSteps
from engines.server import ServerParams, resolve
from tests.engines import replays
from workloads.registry import make_trace

FRAMES = {
    "frame_s": 0.08,
    "duration_s": 2.0,
    "tokens_per_frame": 1,
    "run_cv": 0,
    "session_cv": 0,
    "frame_cv": 0,
}
AT_ONCE = {"wait_scope": "session", "wait_cap": 0.99, "step_rpc_s": 0, "feed_s": 0, "window": 3000}


def test_moshi_on_that_server_takes_as_long_and_has_half_the_depth():
    moshi, persona = (resolve(ServerParams(deployment=name)) for name in ("moshi_h100", "personaplex_h100"))
    ours, theirs = (each.stages["thinker"] for each in (moshi, persona))
    assert ours.extension(StatedSteps) == theirs.extension(StatedSteps)
    assert ours.decoder.code_predictor.steps * 2 == theirs.decoder.code_predictor.steps == 16
    assert ours.decoder.kv_bytes_per_token == theirs.decoder.kv_bytes_per_token == 512 * 1024
    # A ring of 3000 steps is 188 blocks of 16, and one more while its first is part full.
    assert ours.kv_blocks // (3000 // 16 + 2) == 33


@pytest.mark.parametrize("name", ["personaplex_h100", "moshi_h100"])
@pytest.mark.parametrize(("calls", "tick_s"), [(8, 0.0326), (16, 0.0450)])
def test_a_tick_of_so_many_calls_takes_what_was_published(name: str, calls: int, tick_s: float):
    trace = make_trace("metronome", {**FRAMES, "sessions": calls}, 0)
    server = {"deployment": name, "step_noise_cv": 0}
    ran = replays.replay("metronome", AT_ONCE, server, {}, trace, 0)
    steps = ran.steps.to_pandas()
    full = steps.loc[steps["requests"] == calls]
    assert len(full) >= 20 and np.allclose(full["dt_s"], tick_s)
    assert (full["tokens"] == calls).all()  # a position of each
