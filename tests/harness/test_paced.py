"""Device paced: the sessions, schedulers and modelled steps of virtual time, on the wall clock."""

from dataclasses import replace
from time import monotonic
from typing import Any

import pandas as pd
import pytest

from harness.replays.worker.replay import Replay
from harness.request_tables.request_table import request_table
from tests.engines.frames import frames, serve
from tests.engines.replays import replay
from workloads.registry import make_trace
from workloads.trace import Trace


def served(device: str) -> tuple[Replay, Any, float]:
    """The replay of three short calls, its turns, and the seconds that it took."""
    trace = make_trace("voice", {"sessions": 3, "turns": 1.0, "p": 0.0, "utterance_s": 0.4, "reply_tokens": 10}, 3)
    begun_s = monotonic()
    run = replay("vllm_omni", {}, {}, {"turn_send_delay_limit_s": 60}, trace, 7, device)
    return run, request_table(run.events.to_pandas(), pd.DataFrame(trace.columns())), monotonic() - begun_s


def test_turns_are_the_same_ones_on_both_clocks():
    (paced, there, took_s), (virtual, here, _) = served("paced"), served("virtual")
    made = ["session", "turn", "status", "generated_entry", "generated_talker", "audio_s"]
    pd.testing.assert_frame_equal(there[made], here[made])
    assert (there["status"] == "completed").all()
    assert took_s >= paced.run_end_s > 0
    for proof in (paced.proof, virtual.proof):
        assert (proof["requests_before"], proof["kv_blocks_used_after"], proof["requests_after"]) == (0, 0, 0)


def sessions(device: str, engine: str) -> Any:
    """Eight sessions of six frames of half a second, each of about 0.1 s of work. Frames are due half a period from the
    ticks on either side, so that no delay of a shared machine changes what is due at one."""
    due_together = frames(8, 6, lambda session, turn: 4 + (session + turn) % 5, frame_s=0.5)
    turns = (turn for session in due_together.sessions for turn in session.turns)
    later = (replace(turn, arrival_s=(turn.arrival_s or 0.0) + 0.25) for turn in turns)
    window: dict[str, Any] = {"window": 64} if engine == "metronome" else {}
    trace = Trace.from_turns(later, generator="metronome")
    return serve(trace, engine, device, formula=False, template_tokens=16, **window)


@pytest.mark.parametrize("engine", ["vllm_realtime", "metronome"])
def test_interaction_sessions_are_the_same_ones_on_both_clocks(engine: str):
    """Frames fed, words of each session and blocks held do not depend on the clock. In a window the sessions that share
    a step decide how many blocks are held in passing."""
    paced, virtual = sessions("paced", engine), sessions("virtual", engine)

    def fed(run: Any) -> list[list[float]]:
        return sorted(run.kind("fed")[["session", "turn", "value"]].to_numpy().tolist())

    assert len(fed(virtual)) == 48
    assert fed(paced) == fed(virtual)
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
