"""Our scheduler classes as stock vLLM steps them, asynchronously or not."""

from typing import Any

import pytest
from vllm.v1.core.sched.async_scheduler import AsyncScheduler as VllmAsyncScheduler
from vllm.v1.core.sched.request_queue import SchedulingPolicy
from vllm.v1.core.sched.scheduler import Scheduler as VllmScheduler
from vllm.v1.request import RequestStatus

from engines.core.policy import Plan
from engines.core.step_cost import StepWork
from engines.stock.scheduler import AsyncScheduler, Scheduler
from tests.engines.stage import make_scheduler, step
from tests.engines.stock_scheduler import HELD_BY_LEAD, Pipelined, add, buffered, make, signal

pytestmark = pytest.mark.usefixtures("vllm_s_own_engine_process")
STOCK = [{"engine": "vllm_omni"}, {"engine_params": {"scheduling": False}}]
"""Configurations without a policy: a baseline, and LiveServe with its scheduler off."""
SMALL = {"blocks": 14, "max_num_batched_tokens": 64}


class OneByOne(Pipelined):
    """Schedules a step when the one before is known."""

    def step(self) -> set[str]:
        names = super().step()
        self.land()
        return names


def driven(run: Pipelined) -> Pipelined:
    """Sixty steps with requests that come, go and are aborted, on a pool too small for them."""
    for i in range(60):
        if i % 3 == 0:
            add(run.scheduler, f"r{i}", prompt=20 + 7 * (i % 5), output=12 + i % 9)
        if i % 11 == 10:
            run.scheduler.finish_requests(f"r{i - 10 - (i - 10) % 3}", RequestStatus.FINISHED_ABORTED)
        run.step()
    return run


@pytest.mark.parametrize("config", STOCK)
@pytest.mark.parametrize(
    ("cls", "stock", "steps"), [(Scheduler, VllmScheduler, OneByOne), (AsyncScheduler, VllmAsyncScheduler, Pipelined)]
)
def test_without_a_policy_the_order_is_stock_vllm_s(
    config: dict[str, Any], cls: type, stock: type, steps: type[Pipelined]
):
    ours, theirs = driven(steps(make(cls, config, **SMALL))), driven(steps(make_scheduler(stock, **SMALL)))
    assert ours.digests == theirs.digests
    assert ours.tokens == theirs.tokens
    assert any(told["preempted"] for told in ours.digests)


def test_a_well_buffered_reply_waits_and_keeps_its_blocks_until_its_lead_is_heard():
    scheduler = make(Scheduler, HELD_BY_LEAD)
    add(scheduler, "a-0123abcd", session="far")
    add(scheduler, "b-0123abcd")
    step(scheduler)
    buffered(scheduler, "far")
    for _ in range(20):
        step(scheduler)
    held = scheduler.requests["a-0123abcd"]
    assert held.num_output_tokens == 11  # 11 s of text ahead of the listener exceed lead_cap_s, 10.6 s
    assert scheduler.requests["b-0123abcd"].num_output_tokens == 21
    assert held.status == RequestStatus.RUNNING
    assert scheduler.blocks_held("a-0123abcd") == 3
    signal(scheduler, "audio_sent", "far", turn=0, seconds=8.0)
    signal(scheduler, "playback_ack", "far", turn=0, seconds=8.0)
    assert step(scheduler) == {"a-0123abcd", "b-0123abcd"}


def test_a_reply_without_playback_reports_is_never_held():
    scheduler = make(Scheduler, {"speech_s_per_text_token": 1.0})
    add(scheduler, "a", session="quiet")
    assert all(step(scheduler) == {"a"} for _ in range(40))


@pytest.mark.parametrize(
    ("config", "chunks"),
    [
        ({}, (30, 29, 54)),
        # A talker that comes first: the frame of its last token is made in the next step.
        ({"deployment": "qwen3_tts_2gpu"}, (29, 26, 51)),
    ],
)
def test_the_talker_counts_frames_in_chunks(config: dict[str, Any], chunks: tuple[int, int, int]):
    scheduler = make(Scheduler, {"stage": "talker", **config})
    add(scheduler, "a")
    for _ in range(30):
        step(scheduler)
    [seen] = scheduler.view(100.0).requests
    assert (seen.progress.frames, seen.progress.frames_sent, seen.progress.chunk_end) == chunks
    assert seen.progress.frame_s == pytest.approx(0.08)


def test_step_times_are_learnt_from_the_computed_steps():
    scheduler = make(Scheduler, {"engine": "vllm_omni"})
    times = iter(range(1000))
    scheduler.clock = lambda: float(next(times))
    add(scheduler, "a")
    for _ in range(20):
        step(scheduler)
    assert scheduler.step_cost.predict(StepWork.of([(1, 40)])) == pytest.approx(1.0, rel=0.01)


def test_an_asynchronous_view_counts_tokens_in_flight_and_omits_complete_requests():
    scheduler = make(AsyncScheduler)
    add(scheduler, "long", output=50)
    add(scheduler, "short", output=2)
    scheduler.schedule()
    view = scheduler.view(100.0)
    assert [(r.id, r.tokens - r.computed) for r in view.requests] == [("long", 1), ("short", 1)]
    scheduler.schedule()  # the second and last token of "short" is in flight as well
    view = scheduler.view(100.0)
    assert [r.id for r in view.requests] == ["long"]
    assert view.slot_budget == scheduler.max_num_active_reqs - 1


@pytest.mark.parametrize(
    "config", [{"engine": "vllm_omni", "engine_params": {"scheduler": "priority"}}, {"engine": "conserve"}]
)
def test_conserve_takes_blocks_for_an_urgent_request_where_the_priority_policy_lets_it_wait(config: dict[str, Any]):
    """By vLLM's own rule only running requests take blocks from others."""
    scheduler = make(Scheduler, {**config, "deployment": "llama_8b_1gpu"}, blocks=14, max_num_batched_tokens=256)
    for name in ("early", "late"):
        add(scheduler, name, prompt=90, output=50, priority=10)
    assert step(scheduler) == {"early", "late"}
    add(scheduler, "urgent", prompt=90, output=5, priority=0)
    scheduled = step(scheduler)
    if config["engine"] == "conserve":
        assert "urgent" in scheduled and "late" not in scheduled
        assert scheduler.requests["late"].status == RequestStatus.PREEMPTED
    else:
        assert "urgent" not in scheduled


def test_under_priority_scheduling_no_request_is_held_behind_a_lower_priority():
    scheduler = make(Scheduler)
    scheduler.policy = SchedulingPolicy.PRIORITY
    for name, priority in (("batch", 5), ("talk", 0), ("other", 5), ("last", 9)):
        add(scheduler, name, priority=priority)
    plan = scheduler.within_priorities(Plan(order=["batch"], held=frozenset({"talk", "other", "last"})))
    assert plan.order == ["talk", "batch"]
    assert plan.held == {"other", "last"}


def test_a_reused_request_id_is_a_new_request():
    scheduler = make(Scheduler)
    add(scheduler, "a", output=1)
    step(scheduler)
    assert not scheduler.requests
    add(scheduler, "a", output=5)
    assert step(scheduler) == {"a"}, "the step that tells of the first one's end knows the second"
    assert step(scheduler) == {"a"}
