"""Device paced: the sessions, schedulers and modelled steps of virtual time, on the wall clock.

Short runs on a machine that others use, so what is asserted is what no load changes: what was made and for whom, and
that nothing is faster than the model.
"""

from dataclasses import replace
from functools import cache
from time import monotonic
from typing import Any

import pandas as pd
import pytest

from harness.by_device import expand
from harness.experiments.experiment import Experiment
from harness.replays.worker.replay import Replay
from harness.request_tables.request_table import request_table
from tests.engines.frames import frames, serve
from tests.engines.replays import replay
from workloads.registry import make_trace
from workloads.trace import Trace

CALLS = {"sessions": 3, "turns": 1.0, "p": 0.0, "utterance_s": 0.4, "reply_tokens": 10}


@cache
def calls() -> Trace:
    return make_trace("voice", CALLS, 3)


@cache
def served(device: str, trace: Trace | None = None) -> tuple[Replay, Any, float]:
    """The replay, its turns, and the seconds that it took."""
    begun, asked = monotonic(), trace or calls()
    run = replay("vllm_omni", {}, {}, {"turn_send_delay_limit_s": 60}, asked, 7, device)
    table = request_table(run.events.to_pandas(), pd.DataFrame(asked.columns()))
    return run, table, monotonic() - begun


def test_turns_are_the_same_ones_on_both_clocks():
    (paced, there, took_s), (virtual, here, _) = served("paced"), served("virtual")
    made = ["session", "turn", "status", "generated_entry", "generated_talker", "audio_s"]
    pd.testing.assert_frame_equal(there[made], here[made])
    assert (there["status"] == "completed").all()
    assert took_s >= paced.run_end_s > 0
    for proof in (paced.proof, virtual.proof):
        assert (proof["requests_before"], proof["kv_blocks_used_after"], proof["requests_after"]) == (0, 0, 0)


def test_nothing_is_faster_than_the_model():
    """A step ends no sooner than it may, so a caller on their own hears nothing before they do in virtual time."""
    alone = Trace.from_turns(turn for session in calls().sessions[:1] for turn in session.turns)
    virtual_s, paced_s = (served.__wrapped__(device, alone)[1]["audio_ttfp_s"] for device in ("virtual", "paced"))
    assert (paced_s >= virtual_s - 1e-6).all()


@pytest.mark.parametrize("setting", [{}, {"deployment": "speech_tiny"}, {"scale": "hop_s=2"}])
def test_a_modelled_device_takes_profiles_and_factors(setting: dict):
    """The same step times as in virtual time: the points differ in the device alone."""
    data = {"name": "x", "engines": ["vllm_omni"], "workload": "voice", "set": {"sessions": 2, **setting}}
    virtual, paced = (
        expand(Experiment.model_validate({**data, "device": device}))[0] for device in ("virtual", "paced")
    )
    assert paced == virtual.model_copy(update={"device": "paced"}) and paced.id != virtual.id


@cache
def sessions(device: str, engine: str) -> Any:
    """Eight sessions of six frames of half a second, each of about 0.1 s of work."""
    outputs = [[4 + (session + turn) % 5 for turn in range(6)] for session in range(8)]
    due_together = frames(8, 6, lambda session, turn: outputs[session][turn], frame_s=0.5)
    # Half a period from the ticks on either side, so that no delay of a shared machine changes what is due at one.
    turns = (turn for session in due_together.sessions for turn in session.turns)
    trace = Trace.from_turns(
        (replace(turn, arrival_s=(turn.arrival_s or 0.0) + 0.25) for turn in turns), generator="metronome"
    )
    window: dict[str, Any] = {"window": 64} if engine == "metronome" else {}
    return serve(trace, engine, device, formula=False, template_tokens=16, **window)


@pytest.mark.parametrize("engine", ["vllm_realtime", "metronome"])
def test_interaction_sessions_are_the_same_ones_on_both_clocks(engine: str):
    """Frames fed, what each session said in all, and the blocks that they came to hold: none depends on the clock.

    In a window it depends on which sessions share a step how many blocks are held in passing.
    """
    paced, virtual = sessions("paced", engine), sessions("virtual", engine)

    def fed(run: Any) -> list[list[float]]:
        return sorted(run.kind("fed")[["session", "turn", "value"]].to_numpy().tolist())

    assert len(fed(virtual)) == 48 and fed(paced) == fed(virtual)
    # The last Step of a late machine may return words of the answer to the last frame, which nobody waits for.
    there, here = (run.kind("frame_out").groupby("session")["value"].sum().to_numpy() for run in (paced, virtual))
    more = there - here
    assert ((more >= 0) & (more <= [4 + session % 5 for session in range(8)])).all()
    held = [int(run.steps["kv_used"].max()) for run in (paced, virtual)]
    if engine == "metronome":
        assert max(held) <= 8 * (64 // 16 + 1 + 2)  # W = 64 on blocks of 16, and a chunk of 25 tokens
    else:
        assert held[0] == held[1] > 8 * (64 // 16 + 1 + 2)
    assert paced.counters["admitted"] == 8 and paced.replay.proof["kv_blocks_used_after"] == 0


def test_the_ticks_of_the_wall_clock_keep_the_schedule():
    """Absolute times, so a late tick makes none of the later ones late: no tick comes before its time."""
    ticks = sessions("paced", "vllm_realtime").ticks
    beats = ticks["t"] / 0.5
    assert (beats >= beats.round() - 1e-6).all()
    assert ticks["due"].sum() == 48
