"""A hook of the pipeline follows every reply and may reject turns."""

from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest

from engines.turns.hook import Hook
from engines.turns.reply import Reply, ReplyRequest
from harness.kinds.turns import TURNS
from harness.metrics.turns import summarise
from harness.replays.worker.measure import refusals
from harness.replays.worker.replay import Replay
from harness.request_tables.steady_window import Load
from tests.builders import typed_turn
from tests.engines.replays import assert_same, cut_short, replay, voice_trace
from workloads.trace import Trace, Turn

DIVIDED = {"prefill": 1, "decode": 3}


class Followed(Hook):
    """The calls of each reply, in order."""

    def __init__(self) -> None:
        self.told: dict[Reply, list[str]] = {}

    def admitted(self, reply: Reply, request: ReplyRequest) -> bool:
        assert request.prompt == reply.prompt
        self.told[reply] = ["admitted"]
        return False

    def produced(self, reply: Reply) -> None:
        self.told[reply].append("produced")

    def handed_over(self, reply: Reply) -> None:
        self.told[reply].append("handed_over")

    def closed(self, reply: Reply) -> None:
        self.told[reply].append("closed")


def served(hook: Hook | None, params: dict[str, int]) -> Replay:
    trace = cut_short(voice_trace(sessions=8, turns=3.0, rate=8.0), after_s=0.3)
    return replay("vllm_omni_wo", params, {"deployment": "qwen3_omni_8gpu"}, {}, trace, 7, arrange=attaching(hook))


def attaching(hook: Hook | None) -> Callable[[Any], None]:
    return lambda server: None if hook is None else server.gateway.pipeline.attach(hook)


@pytest.mark.parametrize("params", [{}, DIVIDED], ids=["whole", "divided"])
def test_a_hook_follows_every_reply_and_changes_no_run(params: dict[str, int]):
    hook = Followed()
    followed = served(hook, params)
    assert len(hook.told) > 12
    handed = [events for events in hook.told.values() if "handed_over" in events]
    assert bool(handed) == bool(params)
    for events in hook.told.values():
        assert events[0] == "admitted"
        assert set(events[events.index("closed") :]) == {"closed"}, "no other call after the end"
    for events in handed:
        assert events.count("handed_over") == 1
        assert events.index("handed_over") > events.index("produced")
    assert_same(followed, served(None, params))


class TwoATime(Hook):
    """Rejects further turns while two are served."""

    def __init__(self) -> None:
        self.served = 0

    def rejects(self, turn: Turn, tokens: int) -> str:
        return "http 429: two at a time" if self.served == 2 else ""

    def admitted(self, reply: Reply, request: ReplyRequest) -> bool:
        self.served += 1
        return False

    def closed(self, reply: Reply) -> None:
        self.served -= 1


def test_a_rejected_turn_has_not_failed_and_ends_its_session():
    said = [typed_turn(session, 0, arrival_s=session / 10) for session in range(4)]
    trace = Trace.from_turns([*said, *(typed_turn(session, 1) for session in range(4))])
    done = replay("vllm_omni_wo", {}, {"deployment": "llama_8b_1gpu"}, {}, trace, 7, arrange=attaching(TwoATime()))
    turns = TURNS.requests(pd.DataFrame(trace.columns()), done.events.to_pandas(), Load())
    assert turns["status"].tolist() == [*["completed"] * 4, "rejected", "rejected"]
    assert turns["ended_s"].tolist()[4:] == pytest.approx([0.2, 0.3], abs=0.1)
    metrics = summarise(turns, done.steps.to_pandas(), done.run_end_s)
    counts = {name: metrics[name].value for name in ("started", "completed", "failed", "shed")}
    assert counts == {"started": 6, "completed": 4, "failed": 0, "shed": 2}
    assert metrics["ttft_mean"].n == 4 and metrics["ttft_mean"].missing == 2
    reasons = refusals(done.log.event_pieces(), "rejected")["reason"].to_pylist()
    assert reasons == ["http 429: two at a time"] * 2
