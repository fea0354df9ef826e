"""Device paced: the sessions, schedulers and modelled steps of virtual time, on the wall clock.

Short runs on a machine that others use, so what is asserted is what no load changes: what was made and for whom, and
that nothing is faster than the model.
"""

from functools import cache
from time import monotonic

import numpy as np
import pandas as pd
import pytest

from engines.registry import DEVICES, REAL_DEVICES, WALL_DEVICES
from harness.experiment import Experiment, expand
from harness.metrics.requests import request_table
from harness.replay import Replay, replay
from workloads.registry import make_trace
from workloads.trace import Trace

CALLS = {"sessions": 3, "turns": 1.0, "p": 0.0, "utterance_s": 0.4, "reply_tokens": 10}


@cache
def calls() -> Trace:
    return make_trace("voice", CALLS, 3)


@cache
def served(device: str) -> tuple[Replay, pd.DataFrame, float]:
    """The replay, its turns, and the seconds that it took."""
    begun = monotonic()
    run = replay("vllm_omni", {}, {}, {"send_lag_limit_s": 60}, calls(), 7, device)
    table = request_table(run.events.to_pandas(), pd.DataFrame(calls().columns()))
    return run, table, monotonic() - begun


def test_the_devices_on_the_wall_clock_are_paced_and_the_real_ones():
    assert set(DEVICES) == {"virtual", *WALL_DEVICES} and set(WALL_DEVICES) - set(REAL_DEVICES) == {"paced"}


def test_turns_are_the_same_ones_on_both_clocks():
    (paced, there, took_s), (_, here, _) = served("paced"), served("virtual")
    made = ["session", "turn", "status", "generated_thinker", "generated_talker", "audio_s"]
    pd.testing.assert_frame_equal(there[made], here[made])
    assert (there["status"] == "completed").all()
    assert took_s >= paced.run_end_s > 0


def test_nothing_is_faster_than_the_model():
    """A step ends no sooner than it may, so a caller on their own hears nothing before they do in virtual time."""
    alone = Trace.from_turns(turn for session in calls().sessions[:1] for turn in session.turns)
    starts = []
    for device in ("virtual", "paced"):
        run = replay("vllm_omni", {}, {}, {"send_lag_limit_s": 60}, alone, 7, device)
        table = request_table(run.events.to_pandas(), pd.DataFrame(alone.columns()))
        starts.append(table["audio_ttfp_s"].to_numpy())
    assert np.all(starts[1] >= starts[0] - 1e-6)


def test_the_same_pool_is_left_empty():
    for device in ("paced", "virtual"):
        proof = served(device)[0].proof
        assert (proof["requests_before"], proof["kv_blocks_used_after"], proof["requests_after"]) == (0, 0, 0)


@pytest.mark.parametrize("setting", [{}, {"deployment": "speech_tiny"}, {"scale": "hop_s=2"}])
def test_a_modelled_device_takes_profiles_and_factors(setting: dict):
    """The same step times as in virtual time: the points differ in the device alone."""
    data = {"name": "x", "engines": ["vllm_omni"], "workload": "voice", "set": {"sessions": 2, **setting}}
    virtual, paced = (
        expand(Experiment.model_validate({**data, "device": device}))[0] for device in ("virtual", "paced")
    )
    assert paced == virtual.model_copy(update={"device": "paced"}) and paced.id != virtual.id
