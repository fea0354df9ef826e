"""Prompts that are computed while their users still speak: the time they save, and the log without them."""

from functools import cache

import numpy as np
import pytest

from engines.core.engine import StageEngine
from engines.core.request import StageRequest
from harness.replays.worker.replay import Replay
from tests.engines.replays import replay
from workloads.errors import UserError
from workloads.registry import make_trace

TRACE = make_trace("voice", {"sessions": 6, "turns": 3, "p": 0.3}, 3)


@cache
def served(engine: str, every_s: float, c: int = 6) -> Replay:
    kv = {} if engine == "liveserve" else {"kv": "liveserve"}
    params = {"prefill_ahead_s": every_s} if every_s else {}
    return replay(engine, kv | params, {}, {"c": c}, TRACE, seed=5)


def moments(run: Replay, kind: str, stage: str = "thinker") -> dict[tuple[int, int], list[float]]:
    """When each turn had this, s."""
    found: dict[tuple[int, int], list[float]] = {}
    for t, each, session, turn, where in run.events.to_pandas()[["t", "kind", "session", "turn", "stage"]].to_numpy():
        if (each, where) == (kind, stage):
            found.setdefault((session, turn), []).append(t)
    return found


@pytest.mark.parametrize("engine", ("liveserve", "vllm_omni_wo"))
def test_prefills_ahead_leave_no_events_of_their_own(engine: str) -> None:
    run, plain = served(engine, 0.5), served(engine, 0.0)
    for kind in ("arrive", "start"):
        turns, before = moments(run, kind), moments(plain, kind)
        assert turns.keys() == before.keys() and all(len(times) == 1 for times in turns.values())
    assert run.counters["prefills_ahead"] > 20
    assert "prefills_ahead" not in plain.counters


@pytest.mark.parametrize("engine", ("liveserve", "vllm_omni_wo"))
def test_less_is_left_to_compute_when_the_turn_ends(engine: str) -> None:
    def ttft_ms(run: Replay) -> float:
        ends, tokens = moments(run, "turn_end", ""), moments(run, "token")
        return 1e3 * float(np.median([times[0] - ends[turn][0] for turn, times in tokens.items()]))

    saved = ttft_ms(served(engine, 0.0)) - ttft_ms(served(engine, 0.5))
    # The prompt's step and a second of sound at most; the last clip is still to be encoded
    assert 2 < saved < 20


def test_a_turn_pays_for_its_sound_once() -> None:
    """Sound that was encoded ahead is not encoded again, and none is left out."""
    seen: dict[tuple[int, int], float] = {}
    submit = StageEngine.submit

    def watched(self: StageEngine, request: StageRequest) -> None:
        if self.stage == "thinker":
            key = request.session, request.turn
            seen[key] = seen.get(key, 0.0) + request.work.audio_s
        submit(self, request)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StageEngine, "submit", watched)
        replay("liveserve", {"prefill_ahead_s": 0.5}, {}, {"c": 1}, TRACE, seed=5)
    spoken = {(turn.session, turn.turn): turn.audio_s for each in TRACE.sessions for turn in each.turns}
    for key, seconds in seen.items():
        # The last one may have been cut, and is done again
        assert seconds == pytest.approx(spoken[key], abs=0.51)


@pytest.mark.parametrize("server", ({"prefix_caching": False}, {"deployment": "llama_8b_1gpu"}))
def test_prefill_ahead_without_prefix_caching_or_speech_is_refused(server: dict) -> None:
    trace = TRACE if "deployment" not in server else make_trace("sharegpt", {"requests": 2, "reply": "text"}, 0)
    with pytest.raises(UserError, match="prefill_ahead_s needs"):
        replay("liveserve", {"prefill_ahead_s": 0.5}, server, {}, trace, seed=0)
