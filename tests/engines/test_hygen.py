"""HyGen's rule on made-up views, and ConServe's where they agree, in replays, inside stock vLLM on shared prefixes."""

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from engines.co_serving.profiler import profile
from engines.core import vllm_adapter as vllm
from engines.core.policy import Plan, RequestView
from engines.stock.scheduler import Scheduler
from engines.systems.hygen.hygen_params import OrderParams
from engines.systems.hygen.scheduler import Batch, HyGenPolicy, Predictor, PrefixTree, StepTime, features
from tests.engines.conserve.test_latency import measure
from tests.engines.conserve.test_replay import both_classes, run
from tests.engines.conserve.test_scheduler import (
    OFFLINE,
    ONLINE,
    SIZE,
    assert_given_out_once,
    computing,
    request,
    requests,
    view,
)
from tests.engines.conserve.test_scheduler import policy as conserve
from tests.engines.stage import finish
from tests.engines.stock_scheduler import make
from workloads.errors import UserError

PREDICTOR = Predictor(2.3e-5, 3.9e-8, 1e-10, 0.0, 1e-4, 5e-5, 0.006)
BUDGET_S = 0.05
COEFFICIENT = st.one_of(st.just(0.0), st.floats(1e-12, 1e-4))


def policy(**params: Any) -> HyGenPolicy:
    made = HyGenPolicy(OrderParams(**{"latency_budget_s": BUDGET_S} | params))
    made.predictor, made.profiled = PREDICTOR, True
    return made


def predicted(plan: Plan, made: Sequence[RequestView]) -> float:
    batch = Batch()
    for each in made:
        if each.id in plan.caps:
            batch = batch.plus(plan.caps[each.id], each.computed, each.new == 1)
    return PREDICTOR.seconds(batch)


@given(
    st.builds(Predictor, *[COEFFICIENT] * 6, st.floats(0.0, 0.02)),
    st.floats(0.0, 0.2),
    st.integers(0, 4000),
    st.integers(1, 300),
    st.lists(st.tuples(st.integers(1, 500), st.integers(0, 4000)), max_size=6),
)
def test_as_many_tokens_as_the_budget_allows(predictor, budget_s, context, need, shape):
    """Against trying every number, beside whoever is in the step; a step of nobody takes one token in any case."""
    before = Batch.of(shape)
    each = request("r", OFFLINE, 0.0, context + need, context, running=True)
    most = StepTime(predictor, budget_s, before).most(each, need)
    fitting = [
        n for n in range(1, need + 1) if predictor.seconds(before.plus(n, context, need == 1)) <= budget_s
    ]
    assert most == max(fitting, default=0 if shape else 1)


@settings(max_examples=100)
@given(requests(), st.integers(0, 2000))
def test_offline_requests_keep_the_predicted_step_within_the_budget(made, free: int):
    """Only online ones may exceed it, and then nobody else is in the step."""
    seen = view(made, free)
    plan = policy().plan(seen)
    offline = [each for each in made if each.slo is OFFLINE and each.id in plan.caps]
    if offline and len(plan.caps) > 1:
        assert predicted(plan, made) <= BUDGET_S
    assert sum(plan.caps.values()) <= seen.token_budget and set(plan.order) == set(plan.caps)


RULES = [lambda budget_s, _: policy(latency_budget_s=budget_s), lambda _, slo: conserve(slo_scheduler=slo)]
BUDGETS = st.floats(0.006, 0.05)


@pytest.mark.parametrize("rule", RULES)
@settings(max_examples=100)
@given(requests(), st.integers(0, 2000), BUDGETS, st.booleans())
def test_blocks_are_given_out_once_and_taken_from_offline_requests_first(rule, made, free, budget_s, slo):
    assert_given_out_once(rule(budget_s, slo).plan(view(made, free)), made, free)


@pytest.mark.parametrize("rule", [policy, conserve])
@settings(max_examples=200)
@given(requests(), st.integers(0, 2000))
def test_the_online_phase_does_not_know_who_is_offline(rule: Any, made, free: int):
    """But for the blocks that they hold."""
    online = [each for each in made if each.slo is ONLINE]
    assume(online)
    held = sum(each.blocks for each in made if each.slo is OFFLINE)
    beside, alone = (computing(rule().plan(seen)) for seen in (view(made, free), view(online, free + held)))
    assert {id: tokens for id, tokens in beside.items() if id in alone} == alone


COME_BACK = [request(f"r{i}", ONLINE, 0.0, 1, 0, running=False) for i in range(2)]
COME_BACK += [request("r2", ONLINE, 0.0, 146, 145, running=False)]
"""Two wait, and the KV of a third one fills the pool."""


@pytest.mark.parametrize("rule", RULES)
@settings(max_examples=100)
@example(COME_BACK, 0, 0.05, True)
@given(requests(), st.integers(0, 3), BUDGETS, st.booleans())
def test_somebody_always_goes_on(rule: Any, made, free: int, budget_s: float, slo: bool):
    """However full the pool is, as long as it could hold any one request alone, and however short a budget."""
    pool = free + sum(each.blocks for each in made)
    assume(all(-(-each.tokens // SIZE) <= pool for each in made))
    assert computing(rule(budget_s, slo).plan(view(made, free)))


WORDS = st.lists(st.integers(0, 2), max_size=6)


def queued(prompts: Sequence[Sequence[int]]) -> list[RequestView]:
    """Requests in their order; a hash is all that is before it, as vLLM's."""
    made = []
    for i, prompt in enumerate(prompts):
        each = request(f"r{i:02}", OFFLINE, float(i), SIZE * len(prompt) + 1, 0, running=False)
        each.hashes = [bytes(prompt[: end + 1]) for end in range(len(prompt))]
        made.append(each)
    return made


@given(st.lists(WORDS, min_size=1, max_size=12), st.data())
def test_whoever_shares_a_prefix_stands_together(prompts, data):
    """Depth first: the requests below any node are next to each other, whoever came and went before."""
    tree, made = PrefixTree(), queued(prompts)
    tree.keep(data.draw(st.lists(st.sampled_from(made), unique_by=lambda each: each.id)))
    tree.keep(made)
    order = sorted(made, key=lambda each: (tree.path(each), each.ready_s))
    for node in {node for each in made for node in each.hashes}:
        places = [i for i, each in enumerate(order) if node in each.hashes]
        assert places == list(range(places[0], places[-1] + 1))
    tree.keep([])
    assert not (tree._paths or tree._nodes or tree._first or tree._through)


@pytest.mark.parametrize(("share", "oldest"), [(0.0, 8), (0.5, 4), (0.75, 2)])
def test_who_shares_nothing_is_not_starved(share: float, oldest: int):
    """Of eight that are let in, so many are those that have waited longest, though others share a prefix."""
    alone, common = [[10 + i] for i in range(10)], [[0, i] for i in range(1, 10)]
    made = queued([[0, 0], *alone, *common])
    first = policy(prefix_share=share).in_order(made)[:8]
    by_age = [each for each in first if each.id in {waiting.id for waiting in made[: oldest + 1]}]
    assert len(by_age) >= oldest
    assert (first == made[:8]) == (share == 0.0)


def test_a_budget_that_no_step_keeps_is_refused():
    with pytest.raises(UserError, match=r"latency_budget_s=0.001 is shorter than a step of a single token"):
        policy(latency_budget_s=0.001).profile(lambda shape: PREDICTOR.seconds(Batch.of(shape)), 8192)


def test_the_fit_finds_a_line_that_is_one_and_is_worse_than_conserves_where_prompts_have_a_context():
    """The features do not hold what a chunk attends to."""
    exact = profile(lambda shape: PREDICTOR.seconds(Batch.of(shape)), 8192, features)
    assert exact.coefficients == pytest.approx(tuple(vars(PREDICTOR).values()), rel=0.01, abs=1e-12)
    assert profile(measure(noise_cv=0.0), 8192, features).error_p99 > 0.1


def test_inside_stock_vllm_the_queue_is_served_by_shared_prefixes():
    """vLLM's own hashes; a block of cache each second request of a group has not to compute."""
    limits = {"blocks": 200, "max_num_batched_tokens": 96, "prefix_caching": True}
    scheduler = make(Scheduler, {"engine": "hygen", "deployment": "llama_8b_1gpu"}, **limits)
    rng = random.Random(5)
    groups = {name: [rng.randrange(1000) for _ in range(64)] for name in "ab"}
    for i in range(3):
        for name, common in groups.items():
            own = [rng.randrange(1000) for _ in range(16)]
            each = vllm.make_request(f"{name}{i}", common + own, 1, 0.0, scheduler.block_size, priority=10)
            scheduler.add_request(each)
    started = []
    while scheduler.requests:
        output = scheduler.schedule()
        started += [new.req_id for new in output.scheduled_new_reqs]
        finish(scheduler, output)
    assert started == ["a0", "a1", "a2", "b0", "b1", "b2"]


def test_a_shorter_budget_makes_smaller_steps_and_spares_online_requests():
    trace = both_classes(requests=30, rate=3.0, documents=30)
    tails, sizes = [], []
    for budget_s in (0.02, 0.2):
        done = run(trace, "hygen", latency_budget_s=budget_s)
        events = done.events.to_pandas()
        online = events[(events["kind"] == "token") & events["session"].isin(_online(trace))]
        tails.append(float(np.quantile(online.groupby("session")["t"].diff().dropna(), 0.99)))
        sizes.append(float(np.mean(done.steps["tokens"].to_pylist())))
    assert tails[0] < tails[1] and sizes[0] < sizes[1]


def _online(trace: Any) -> set[int]:
    columns = trace.columns()
    return set(columns["session"][columns["priority"] == 0].tolist())
