"""A replay on the CPU whose thinker hears the callers' speech, with barge-ins."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from engines.deployments import load_deployment
from tests.builders import in_own_process
from tests.engines.replays import replay, voice_trace
from workloads.errors import UserError
from workloads.registry import make_trace

pytestmark = pytest.mark.slow("runs a model on the CPU")

SERVER = {"deployment": "omni_tiny", "abort_at": "layer"}
SPEECH = {"sessions": 2, "turns": 2.0, "p": 0.6, "rate": 4.0, "reply_tokens": 8, "cut": "truncate"}
"""Two callers of two turns each, three of these interrupted, in 12 s."""


@dataclass
class Served:
    """A replay, and the id, prompt and (offset, length) of the sounds of each thinker request."""

    events: Any
    counters: dict[str, int]
    proof: dict[str, Any]
    asked: list[tuple[str, list[int], list[tuple[int, int]]]] = field(default_factory=list)


def serve(device: str) -> Served:
    """Replay and record the requests to the thinker."""
    from engines.core import vllm_adapter as vllm

    asked, make_request = [], vllm.make_request

    def make_and_note(id, prompt, *args, **kwargs):
        request = make_request(id, prompt, *args, **kwargs)
        places = [(f.mm_position.offset, f.mm_position.length) for f in request.mm_features]
        if id.endswith("thinker"):
            asked.append((id, prompt, places))
        return request

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vllm, "make_request", make_and_note)
        run = replay("liveserve", {}, SERVER, {}, make_trace("speech", SPEECH, 31), 1, device)
    events = run.events.to_pandas().astype({"kind": str, "stage": str})
    return Served(events, run.counters, run.proof, asked)


@pytest.fixture(scope="module")
def served() -> Served:
    return in_own_process(serve, "cpu")


def test_every_spoken_turn_is_answered(served: Served):
    kinds = served.events["kind"].value_counts()
    assert served.counters["sounds_heard"] == kinds["turn_done"] == 4 and "turn_failed" not in kinds
    assert kinds["barge_in"] == 3
    assert served.proof["requests_after"] == served.proof["kv_blocks_used_after"] == 0
    tokens = served.events[served.events["kind"] == "token"]
    first = tokens.groupby(["session", "turn", "stage"])["t"].min().unstack("stage")
    assert len(first) == 4
    assert (first["thinker"] < first["talker"]).all() and (first["talker"] < first["vocoder"]).all()


def test_a_prompt_holds_the_speech_of_all_turns_so_far(served: Served):
    special = load_deployment("omni_tiny").model.stages["thinker"].vocab
    assert len(served.asked) == 4
    for name, prompt, places in served.asked:
        turn = int(name.split(".")[1])
        assert len(places) == turn + 1
        for offset, length in places:
            sound = prompt[offset : offset + length]
            assert len(set(sound)) == 1 and sound[0] > special - 10
            assert prompt[offset - 1] > sound[0] > prompt[offset + length] > special - 10


def test_a_trace_without_words_is_refused():
    with pytest.raises(UserError, match="workload=speech"):
        replay("vllm_omni", {}, SERVER, {}, voice_trace(), 1, "cpu")
