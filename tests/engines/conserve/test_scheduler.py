"""ConServe's Algorithms 1 and 2 on generated views: time limits, blocks, preemption, arrivals."""

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from engines.co_serving.profiler import Profile
from engines.core.policy import Plan, RequestView, StageView
from engines.systems.conserve.conserve_params import Params
from engines.systems.conserve.scheduler import ConServePolicy, LatencyModel, _efficient
from workloads.columns.classes import Slo
from workloads.errors import UserError

MODEL = LatencyModel(token=2.3e-5, pair=8.7e-10, visible=3.9e-8, constant=0.006)
ONLINE = Slo("online", 0, ttft_deadline_s=0.5, tbt_deadline_s=0.06)
OFFLINE = Slo("batch", 10)
SIZE = 16


def request(name: str, slo: Slo, ready_s: float, tokens: int, computed: int, running: bool) -> RequestView:
    return RequestView(name, ready_s, None, slo, running, tokens, computed, -(-computed // SIZE))


@st.composite
def requests(draw: Any) -> list[RequestView]:
    made = []
    for i in range(draw(st.integers(1, 14))):
        slo, running = draw(st.sampled_from([ONLINE, OFFLINE])), draw(st.booleans())
        tokens = draw(st.integers(1, 12_000))
        computed = draw(st.one_of(st.just(tokens - 1 if running else 0), st.integers(0, tokens - 1)))
        made.append(request(f"r{i:02}", slo, draw(st.floats(0, 10)), tokens, computed, running))
    return made


def view(made: list[RequestView], free: int, slots: int = 64) -> StageView[RequestView]:
    held = sum(each.blocks for each in made)
    return StageView("thinker", 10.0, made, 8192, slots, free, held + free, SIZE, lambda work: None)


def policy(**params: Any) -> ConServePolicy:
    made = ConServePolicy(Params(**params), prefetch=params.get("resume", "ic_prefetch") == "ic_prefetch")
    made.model, made._profile = MODEL, Profile((), np.empty(0), np.empty((0, 1)))  # exact: no guard
    return made


def computing(plan: Plan) -> dict[str, int]:
    return {id: tokens for id, tokens in plan.caps.items() if tokens}


@settings(max_examples=100)
@given(requests(), st.integers(0, 2000))
def test_the_step_keeps_its_time_limit_unless_those_who_are_answered_exceed_it(made, free: int):
    by_id = {each.id: each for each in made}
    tokens = computing(policy().plan(view(made, free)))
    online = [each for each in made if each.slo is ONLINE]
    assume(online and tokens)
    decodes = [(1, each.computed) for each in online if each.running and each.new == 1 and each.id in tokens]
    limit_s = max(0.06, MODEL.seconds(decodes), MODEL.seconds([(SIZE, 12_000)]))
    assert MODEL.seconds([(count, by_id[id].computed) for id, count in tokens.items()]) <= limit_s + 1e-9


def test_without_online_requests_steps_are_as_large_as_is_efficient():
    made = view([request(f"r{i}", OFFLINE, float(i), 8000, 0, running=False) for i in range(3)], free=4000)
    limited = policy(offline_mode=False)
    limited._limit_s = 0.03
    assert sum(policy().plan(made).caps.values()) > 1.2 * sum(limited.plan(made).caps.values())


SHAPE, IDS = [(2048, 20_000), (1, 500)], ("offline", "online")
"""A step of an offline prompt and an online decode, 90 ms long by the model."""


def arrival(scheduler: ConServePolicy, tokens: int, elapsed_s: float, slo: Slo = ONLINE) -> Any:
    made = [
        request("offline", OFFLINE, 0.0, 30_000, 20_000, running=True),
        request("online", ONLINE, 0.0, 501, 500, running=True),
    ]
    scheduler.plan(view(made, free=1000))
    return scheduler.arrived(request("new", slo, 10.0, tokens, 0, False), SHAPE, IDS, elapsed_s)


def test_the_step_that_follows_is_taken_to_be_as_long_as_its_prompts():
    """By the paper: neither the replies under way nor the offline tokens that will fill it count."""
    limit_s = MODEL.seconds(SHAPE) + MODEL.seconds([(512, 0)])
    late = {"ttft_slo_s": limit_s - 1e-6}
    assert arrival(policy(ttft_slo_s=limit_s + 1e-6), 512, elapsed_s=0.0) == ()
    assert arrival(policy(**late), 512, elapsed_s=0.0) == ["offline"]
    assert arrival(policy(**late), 512, elapsed_s=2e-6) == (), "the step has been running"
    assert arrival(policy(**late, layer_preemption=False), 512, elapsed_s=0.0) == ()
    assert arrival(policy(**late), 512, elapsed_s=0.0, slo=OFFLINE) == ()


@pytest.mark.parametrize(
    ("params", "step_s"),
    [
        ({"ttft_slo_s": 0.35}, 0.05),  # it has 50 ms of t_TBT's 60 at the view's time, 10 s
        ({"ttft_slo_s": 0.35, "guard": 0.1}, 0.045),
        ({"ttft_slo_s": 0.35, "ttft_fill": False}, 0.06),
        ({"ttft_slo_s": 0.5}, 0.06),
        ({"ttft_slo_s": 0.3}, MODEL.seconds([(1000, 0)])),  # a late one's is not filled
    ],
)
def test_a_step_that_ends_a_prompt_is_filled_as_far_as_its_ttft_allows(params: dict[str, Any], step_s: float):
    prompt = request("prompt", ONLINE, 9.7, 1000, 0, running=False)
    document = request("document", OFFLINE, 0.0, 9000, 0, running=False)
    plan = computing(policy(**params).plan(view([prompt, document], 4000)))
    assert MODEL.seconds([(tokens, 0) for tokens in plan.values()]) == pytest.approx(step_s, abs=1e-4)


def test_a_time_limit_that_no_step_keeps_is_refused():
    def profiled(**params: Any) -> ConServePolicy:
        made = policy(**params)
        made.profile(MODEL.seconds, 8192)
        return made

    with pytest.raises(UserError, match=r"tbt_slo_s=0.001 less the guard of 0 % is shorter than a step"):
        profiled(tbt_slo_s=0.001)
    fitted = profiled().model
    assert fitted is not None
    shortest_s = fitted.seconds([(1, 0)])
    profiled(tbt_slo_s=shortest_s)
    with pytest.raises(UserError, match="is shorter than a step"):
        profiled(tbt_slo_s=shortest_s * (1 - 1e-9))


@settings(max_examples=100)
@given(requests(), st.integers(0, 2000), st.booleans())
def test_blocks_are_given_out_once_and_taken_from_offline_requests_first(made, free: int, slo: bool):
    """The plan's blocks are free or given back, first by offline requests, and who is not in it is held."""
    plan, by_id = policy(slo_scheduler=slo).plan(view(made, free)), {each.id: each for each in made}
    assert not set(plan.preempt) & set(plan.order) and not set(plan.order) & plan.held
    assert set(plan.order) | plan.held == set(by_id) and set(plan.order) <= set(plan.caps)
    assert all(by_id[id].blocks for id in plan.preempt)
    if any(by_id[id].slo is ONLINE for id in plan.preempt):
        assert all(each.id in plan.preempt for each in made if each.slo is OFFLINE and each.blocks)
    needed = 0
    for id, tokens in computing(plan).items():
        each = by_id[id]
        assert 0 < tokens <= each.new
        until = each.computed + tokens if each.running else each.tokens
        needed += max(0, -(-until // SIZE) - each.blocks)
    assert needed <= free + sum(by_id[id].blocks for id in plan.preempt)


@settings(max_examples=200)
@given(requests(), st.integers(0, 2000))
def test_the_online_phase_does_not_know_who_is_offline(made, free: int):
    """But for the blocks that they hold."""
    online = [each for each in made if each.slo is ONLINE]
    assume(online)
    held = sum(each.blocks for each in made if each.slo is OFFLINE)
    beside, alone = (computing(policy().plan(seen)) for seen in (view(made, free), view(online, free + held)))
    assert {id: tokens for id, tokens in beside.items() if id in alone} == alone


COME_BACK = [request(f"r{i}", ONLINE, 0.0, 1, 0, running=False) for i in range(2)]
COME_BACK += [request("r2", ONLINE, 0.0, 146, 145, running=False)]
"""Two wait, and the KV of a third one fills the pool."""


@settings(max_examples=100)
@example(COME_BACK, 0, True)
@given(requests(), st.integers(0, 3), st.booleans())
def test_some_request_always_computes_if_the_pool_holds_each_alone(made, free: int, slo: bool):
    """However full the pool is, as long as it could hold any one request alone."""
    pool = free + sum(each.blocks for each in made)
    assume(all(-(-each.tokens // SIZE) <= pool for each in made))
    assert computing(policy(slo_scheduler=slo).plan(view(made, free)))


@pytest.mark.parametrize(
    ("constant_s", "most", "expected"),
    [
        (0.0, 8192, 64),  # every step makes as many tokens per second: the smallest
        (1.0, 8192, 8192),  # a step lasts about as long at any size: the largest power of two
        (1.0, 8191, 4096),
        (1.0, 64, 64),
        (1.0, 63, 63),  # below the smallest power
    ],
)
def test_an_efficient_step_is_a_power_of_two(constant_s: float, most: int, expected: int) -> None:
    model = LatencyModel(token=1e-6, pair=0.0, visible=0.0, constant=constant_s)
    assert _efficient(model, [request("r", OFFLINE, 0.0, 8000, 0, running=True)], most) == expected
