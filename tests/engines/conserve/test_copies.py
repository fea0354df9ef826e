"""KV of a preempted request: its copies to the host and back, the waits for them, and recomputed tokens."""

from typing import Any

import pytest

from engines.core.policy import RequestView
from engines.core.stage import HostCopies
from engines.core.view import stage_view
from engines.core.vllm_adapter.execution import ModelExecutor
from tests.engines.host import BLOCKS_PER_S, Bench
from tests.engines.real import clean, executor, stock_tokens
from tests.engines.test_offload import evicted

SWAP = HostCopies("preempted", "before")
IC = HostCopies("computed", "before")
IC_PREFETCH = HostCopies("computed", "beside")
ALL = [SWAP, IC, IC_PREFETCH]


def decoding(copies: HostCopies, prompt: int = 640) -> Bench:
    """A request that has computed its prompt of 40 blocks and decodes; everything that is to be copied has been."""
    bench = Bench(copies=copies)
    bench.turn("v", 1, prompt, output=20)
    for _ in range(5):
        bench.step()
        bench.arrive()
    return bench


def one_step_without(bench: Bench, name: str) -> None:
    bench.scheduler.waiting.remove_requests([request := bench.scheduler.requests[name]])
    bench.step()
    bench.scheduler.waiting.add_request(request)


def others_need_the_pool(bench: Bench) -> None:
    """Another request, an online one, takes all 100 blocks but one, and ends."""
    bench.ask("o", 2, bench.tokens(2, 1584), 1, stored=False)
    one_step_without(bench, "v")


def runs_on(bench: Bench) -> int:
    """Tokens of the next step that computes any."""
    while not (computed := bench.step().get("v", 0)):
        bench.arrive()
    return computed


def ends(bench: Bench) -> None:
    bench.settle()
    bench.check()


@pytest.mark.parametrize(("copies", "waits_s"), [(SWAP, 40 / BLOCKS_PER_S), (IC, 0.0), (IC_PREFETCH, 0.0)])
def test_only_swapping_waits_for_the_copy_of_what_is_preempted(copies: HostCopies, waits_s: float):
    bench = decoding(copies)
    waited_s, free = bench.waited_s, bench.scheduler.free_blocks
    assert (bench.transfers.counters["d2h_bytes"] == 0) == (copies is SWAP)
    bench.scheduler.preempt(["v"])
    assert bench.scheduler.free_blocks > free, "its blocks are free at once"
    others_need_the_pool(bench)
    assert bench.waited_s - waited_s == pytest.approx(waits_s)
    ends(bench)


@pytest.mark.parametrize("copies", ALL)
def test_what_comes_back_is_not_computed_again(copies: HostCopies):
    """640 prompt tokens are 40 full blocks; the decoded ones do not fill another."""
    bench = decoding(copies)
    bench.scheduler.preempt(["v"])
    others_need_the_pool(bench)
    waited_s, begun_s = bench.waited_s, bench.now
    assert runs_on(bench) < bench.scheduler.block_size
    assert dict(bench.loads)["v"] == 39  # no request has needed the first block
    load_s = 39 / BLOCKS_PER_S
    assert bench.waited_s - waited_s == pytest.approx(load_s if copies.loads == "before" else 0.0)
    assert bench.now - begun_s >= load_s
    ends(bench)


def test_blocks_go_from_the_tail():
    bench = decoding(IC)
    bench.scheduler.preempt(["v"])
    bench.turn("o", 2, 1200, output=1)  # 75 of 100 blocks, where 60 were empty
    one_step_without(bench, "v")
    cached = bench.scheduler.cached_prefix(bench.tokens(1, 640))
    assert 0 < cached < 640, "the head of its prompt is still there, and its tail is not"
    ends(bench)


@pytest.mark.parametrize("copies", ALL)
def test_real_pages_give_the_same_tokens_after_they_were_away(copies: HostCopies):
    """On the CPU: blocks are really overwritten, really come back, and the tokens are those of `LLM.generate`."""
    model: ModelExecutor = executor(prefix_caching=True, kv_pool_blocks=64, host_kv_gb=0.2)
    with clean(model):
        model.scheduler.reset_connector_cache()
        bench = Bench(model=model, copies=copies)
        prompt, other = bench.tokens(0, 400), [5 + i % 3000 for i in range(1900)]
        bench.ask("v", 1, prompt, 24)
        for _ in range(8):
            bench.step()
            bench.arrive()
        bench.scheduler.preempt(["v"])
        bench.ask("o", 2, other, 4)
        one_step_without(bench, "v")
        ends(bench)
        assert dict(bench.loads)["v"] > 0
    assert [bench.said["v"]] == stock_tokens([prompt], 24)
    assert [bench.said["o"]] == stock_tokens([other], 4)


def test_a_prompt_that_came_back_whole_has_a_token_left_to_compute():
    """Else a policy would find nothing to do for it, and hold it for ever."""
    bench = Bench()
    evicted(bench)
    bench.turn("1.1", 1, 640)
    bench.step()
    bench.arrive()
    bench.step()
    scheduler = bench.scheduler

    def view_of(request: Any, now: float) -> RequestView:
        return RequestView(request.request_id, 0.0)

    view = stage_view("s", bench.now, scheduler, scheduler.requests, view_of, lambda work: None, frozenset(), 0)
    [seen] = view.requests
    assert (seen.running, seen.blocks, seen.new) == (False, 40, 1)
    ends(bench)
