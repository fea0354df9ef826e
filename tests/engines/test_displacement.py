"""The urgency policy over vLLM's own scheduler: who runs when tokens or blocks bind, and what becomes of who waits."""

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from engines.core.view import stage_view
from engines.systems.liveserve import urgency
from engines.systems.liveserve.liveserve_params import Params
from engines.systems.liveserve.scheduler import UrgencyPolicy
from engines.systems.liveserve.urgency import U2
from engines.turns.monitor import SessionView
from engines.turns.reply import Progress, SpeechView
from tests.engines.stage import add, make_scheduler, step

NOW = 100.0


@dataclass
class Listener:
    """What is known of a request beside vLLM."""

    ready_s: float
    ahead_s: float | None

    def view(self, name: str) -> SpeechView:
        """`ahead_s` of audio that nobody has heard yet; None before the first audio."""
        session, progress = SessionView(0, 0.28), Progress(True, 25, 0.08)
        if self.ahead_s is not None:
            progress.frames = progress.frames_sent = 25 + round(self.ahead_s / 0.08)
            session.audio_sent_s = progress.frames * 0.08
            session.first_audio_s, session.last_ack_s, session.played_s, session.playing = 1.0, NOW, 2.0, True
        return SpeechView(name, self.ready_s, progress=progress, session=session)


class Stage:
    """A small talker under LiveServe's policy, and what its listeners do."""

    def __init__(self, blocks: int, tokens: int = 2048, slots: int = 16, **params) -> None:
        self.scheduler = make_scheduler(blocks=blocks, max_num_batched_tokens=tokens, max_num_seqs=slots)
        self.policy = UrgencyPolicy("talker", Params(**params))
        self.listeners: dict[str, Listener] = {}

    def add(self, name: str, prompt: int, ahead_s: float | None = None, output: int = 400) -> None:
        self.listeners[name] = Listener(float(len(self.listeners)), ahead_s)
        add(self.scheduler, name, prompt=prompt, output=output)

    def view(self):
        return stage_view(
            "talker",
            NOW,
            self.scheduler,
            self.scheduler.requests,
            lambda request, now: self.listeners[request.request_id].view(request.request_id),
            lambda batch: 0.001,
            left_out=frozenset(),
            slots_left_out=0,
        )

    def blocks(self) -> dict[str, list[int]]:
        return {name: self.scheduler.block_ids(name) for name in self.listeners}

    def round(self):
        """Plan and step; the plan, and who ran."""
        plan = self.policy.plan(self.view())
        return plan, step(self.scheduler, plan)


def test_a_waiting_first_packet_takes_the_last_blocks_from_who_is_well_ahead():
    """T-f: where blocks bind, U1 displaces a running U2, which keeps its block ids."""
    stage = Stage(blocks=11)
    stage.add("ahead", prompt=128, ahead_s=5.0)
    step(stage.scheduler)  # its next token needs a ninth block; two are free
    before = stage.blocks()["ahead"]
    stage.add("first", prompt=32)
    plan, ran = stage.round()
    assert (plan.order, plan.held, ran) == (["first"], {"ahead"}, {"first"})
    assert stage.blocks()["ahead"] == before
    assert [request.request_id for request in stage.scheduler.running] == ["ahead", "first"]


def test_a_waiting_first_packet_takes_the_round_s_tokens_from_who_is_well_ahead():
    """T-f: where tokens bind, U1 displaces a running U2; stock vLLM serves what is running first."""
    for policy, expected in ((True, {"first": 16}), (False, {"ahead": 1, "first": 15})):
        stage = Stage(blocks=100, tokens=16)
        stage.add("ahead", prompt=16, ahead_s=5.0)
        step(stage.scheduler)
        before = stage.blocks()["ahead"]
        stage.add("first", prompt=16)
        plan = stage.policy.plan(stage.view())
        output = stage.scheduler.schedule_with(plan) if policy else stage.scheduler.schedule()
        assert output.num_scheduled_tokens == expected
        assert stage.blocks()["ahead"][: len(before)] == before


def test_who_was_displaced_goes_on_when_there_is_room_again():
    stage = Stage(blocks=11)
    stage.add("ahead", prompt=128, ahead_s=5.0)
    step(stage.scheduler)
    stage.add("first", prompt=30, output=1)
    stage.round()
    _, ran = stage.round()
    assert ran == {"ahead"}


crowds = st.lists(
    st.tuples(st.integers(1, 120), st.one_of(st.none(), st.floats(0.5, 9.0)), st.integers(1, 40)),
    min_size=1,
    max_size=12,
)


@settings(max_examples=50)
@given(crowds, st.integers(12, 60), st.sampled_from([16, 64, 2048]), st.integers(1, 8), st.booleans(), st.data())
def test_the_plan_is_what_vllm_then_does_and_nobody_held_loses_anything(crowd, blocks, tokens, slots, relief, data):
    """T-c, T-f over whole runs: a plan that vLLM cannot carry out would be a mismatch, and there is none but for
    who waits behind the rest of a running prompt. Only where all who hold blocks run on, so that they end, may vLLM
    have to preempt the last of them."""
    stage = Stage(blocks, tokens, slots, kv_relief=relief)
    coming = [(f"r{i:02d}", *one) for i, one in enumerate(crowd)]
    for _ in range(60):
        for _ in range(min(len(coming), data.draw(st.integers(0, 3)))):
            name, prompt, ahead_s, output = coming.pop(0)
            stage.add(name, prompt, ahead_s, output)
        view = stage.view()
        if not view.requests:
            continue
        ranks = {r.id: urgency.assess("talker", r, NOW, stage.policy.params)[0] for r in view.requests}
        before = stage.policy.counters
        held_blocks = stage.blocks()
        plan, ran = stage.round()
        counters = stage.policy.counters
        relieved = counters["kv_relief"] > before["kv_relief"]
        if not relieved and counters["released_to_preemption"] == before["released_to_preemption"]:
            left = set(plan.order) - ran
            # vLLM serves who is running first: the rest of a long prompt may leave a waiting one no token.
            prefilling = any(r.running and r.tokens - r.computed > 1 for r in view.requests)
            assert ran <= set(plan.order) and (prefilling or not left)
            assert not left & {r.id for r in view.requests if r.running}
        if not relieved and any(ranks[name] != U2 for name in plan.held):
            assert not any(ranks[name] == U2 for name in ran)  # strict break: nobody less urgent runs instead
        for name in plan.held:
            assert stage.blocks()[name] == held_blocks[name]
        for name in [name for name in stage.listeners if name not in stage.scheduler.requests]:
            del stage.listeners[name]
    for name in list(stage.listeners):
        stage.scheduler.abort([name])
    assert stage.scheduler.free_blocks == stage.scheduler.allocatable_blocks
