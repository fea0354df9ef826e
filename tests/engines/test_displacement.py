"""LiveServe's urgency policy on vLLM's scheduler when tokens or blocks run short."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.core.policy import Plan, StageView
from engines.core.view import stage_view
from engines.systems.liveserve import urgency
from engines.systems.liveserve.liveserve_params import Params
from engines.systems.liveserve.scheduler import UrgencyPolicy
from engines.systems.liveserve.urgency import U2
from engines.turns.monitor import SessionView
from engines.turns.reply import Progress, SpeechView
from tests.engines.stage import add, make_scheduler, step

NOW = 100.0


class Stage:
    """A small talker under LiveServe's policy, and what its listeners do."""

    def __init__(self, blocks: int, tokens: int = 2048, slots: int = 16, **params: Any) -> None:
        self.scheduler = make_scheduler(blocks=blocks, max_num_batched_tokens=tokens, max_num_seqs=slots)
        self.policy = UrgencyPolicy("talker", Params(**params))
        self.listeners: dict[str, SpeechView] = {}

    def add(self, name: str, prompt: int, ahead_s: float | None = None, output: int = 400) -> None:
        """`ahead_s`: audio that is not yet played; None before the first audio."""
        session, progress = SessionView(0, 0.28), Progress(True, 25, 0.08)
        if ahead_s is not None:
            progress.frames = progress.frames_sent = 25 + round(ahead_s / 0.08)
            session.audio_sent_s = progress.frames * 0.08
            session.first_audio_s, session.last_ack_s, session.played_s, session.playing = 1.0, NOW, 2.0, True
        self.listeners[name] = SpeechView(name, float(len(self.listeners)), progress=progress, session=session)
        add(self.scheduler, name, prompt=prompt, output=output)

    def view(self) -> StageView[SpeechView]:
        def view_of(request: Any, now: float) -> SpeechView:
            return replace(self.listeners[request.request_id])

        requests = self.scheduler.requests
        return stage_view("talker", NOW, self.scheduler, requests, view_of, lambda batch: 0.001, frozenset(), 0)

    def blocks(self) -> dict[str, list[int]]:
        return {name: self.scheduler.block_ids(name) for name in self.listeners}

    def round(self) -> tuple[Plan, set[str]]:
        """Plan and step; the plan, and the requests that ran."""
        plan = self.policy.plan(self.view())
        return plan, step(self.scheduler, plan)


@pytest.mark.parametrize(("urgency", "tokens"), [(True, {"first": 16}), (False, {"ahead": 1, "first": 15})])
def test_a_waiting_first_packet_takes_the_round_s_tokens_from_who_is_well_ahead(urgency: bool, tokens: dict[str, int]):
    """T-f: where tokens bind, U1 displaces a running U2; stock vLLM serves what is running first."""
    stage = Stage(blocks=100, tokens=16)
    stage.add("ahead", prompt=16, ahead_s=5.0)
    step(stage.scheduler)
    before = stage.blocks()["ahead"]
    stage.add("first", prompt=16)
    plan = stage.policy.plan(stage.view())
    output = stage.scheduler.schedule_with(plan) if urgency else stage.scheduler.schedule()
    assert output.num_scheduled_tokens == tokens
    assert stage.blocks()["ahead"][: len(before)] == before


crowds = st.lists(
    st.tuples(st.integers(1, 120), st.one_of(st.none(), st.floats(0.5, 9.0)), st.integers(1, 40)),
    min_size=1,
    max_size=12,
)


def check_round(stage: Stage) -> None:
    view = stage.view()
    ranks = {r.id: urgency.assess("talker", r, NOW, stage.policy.params)[0] for r in view.requests}
    before, held_blocks = stage.policy.counters, stage.blocks()
    plan, ran = stage.round()
    grown = stage.policy.counters - before
    if not grown["kv_relief"] and not grown["released_to_preemption"]:
        left = set(plan.order) - ran
        # vLLM serves running requests first: the rest of a long prompt may leave no token to a waiting one.
        prefilling = any(r.running and r.tokens - r.computed > 1 for r in view.requests)
        assert ran <= set(plan.order) and (prefilling or not left)
        assert not left & {r.id for r in view.requests if r.running}
    if not grown["kv_relief"] and any(ranks[name] != U2 for name in plan.held):
        assert not any(ranks[name] == U2 for name in ran)  # strict: no less urgent request runs instead
    assert all(stage.blocks()[name] == held_blocks[name] for name in plan.held)


@settings(max_examples=50)
@given(crowds, st.integers(12, 60), st.sampled_from([16, 64, 2048]), st.integers(1, 8), st.booleans(), st.data())
def test_vllm_carries_out_the_plan_and_held_requests_keep_their_blocks(crowd, blocks, tokens, slots, relief, data):
    """T-c, T-f over whole runs. Two exceptions: a request behind the rest of a running prompt may get no token, and
    vLLM may preempt where the policy lets all holders of blocks run so that they end."""
    stage = Stage(blocks, tokens, slots, kv_relief=relief)
    coming = [(f"r{i:02d}", *one) for i, one in enumerate(crowd)]
    for _ in range(60):
        for _ in range(min(len(coming), data.draw(st.integers(0, 3)))):
            stage.add(*coming.pop(0))
        if stage.scheduler.requests:
            check_round(stage)
        stage.listeners = {name: each for name, each in stage.listeners.items() if name in stage.scheduler.requests}
    stage.scheduler.abort(list(stage.listeners))
    assert stage.scheduler.free_blocks == stage.scheduler.allocatable_blocks
