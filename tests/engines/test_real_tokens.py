"""On real CPU execution no change to a schedule changes a token: they equal those of `LLM.generate`."""

import random
import sys
from importlib import import_module

import pytest

from engines.core import vllm_adapter as vllm
from engines.core.policy import Plan
from engines.core.vllm_adapter.execution import UNREADABLE, ModelExecutor
from tests.builders import in_own_process
from tests.engines.real import clean, drain, executor, prompts, stage, steps, stock_tokens, submit

TOKENS = 24


def stock_order(deployment: str) -> None:
    model, asked = executor(deployment), prompts(8)
    with clean(model):
        tokens = drain(model, submit(model, asked, TOKENS))
    assert tokens == stock_tokens(asked, TOKENS, deployment)
    assert len({id for ids in tokens for id in ids}) > 20, "weights that say one word prove nothing"


def test_stock_order_gives_the_tokens_of_llm_generate():
    stock_order("llama_tiny")


@pytest.mark.slow("runs a model on the CPU")
def test_an_engine_can_be_made_after_sound_was_degraded():
    """librosa loads llvmlite, over whose functions vLLM's search for kernels falls."""
    ffi = import_module(UNREADABLE)
    model = ModelExecutor(stage())
    assert model.warm_up() > 0
    assert sys.modules[UNREADABLE] is ffi
    model.close()


@pytest.mark.slow("runs a model on the CPU")
def test_stock_order_gives_the_tokens_of_llm_generate_with_experts():
    """In a process of its own: vLLM makes its expert group with the first model of a process or never."""
    in_own_process(stock_order, "moe_tiny")


def test_held_reordered_and_capped_requests_give_the_same_tokens():
    model, asked, rng = executor(), prompts(8), random.Random(5)

    def shuffle():
        order = rng.sample([*model.scheduler.requests], len(model.scheduler.requests))
        held = frozenset(order[: rng.randrange(len(order))])
        caps = {name: rng.choice((1, 7, 64)) for name in order}
        return Plan(order=order, held=held, caps=caps, step_budget=rng.choice((None, 16, 100)))

    with clean(model):
        tokens = drain(model, submit(model, asked, TOKENS), shuffle)
    assert tokens == stock_tokens(asked, TOKENS)


def test_preempted_requests_give_the_same_tokens():
    model, asked = (executor(kv_pool_blocks=70), prompts(24, seed=2))  # and their 80 tokens each need 120 blocks

    with clean(model):
        out = {name: [] for name in submit(model, asked, 80)}
        preempted = sum(len(scheduled.preempted_req_ids or ()) for scheduled in steps(model, out))
    assert preempted > 0
    assert list(out.values()) == stock_tokens(asked, 80)


def test_prefix_hits_give_the_same_tokens():
    model, asked = executor(prefix_caching=True), prompts(6, seed=3, shared=96)
    with clean(model):
        first = drain(model, submit(model, asked, TOKENS, hashed=True))
        again = {name: [] for name in submit(model, asked, TOKENS, hashed=True)}
        rows = [vllm.rows_of(model.scheduler, scheduled) for scheduled in steps(model, again)]
    assert all(row.context >= 96 for row in rows[0])
    assert first == list(again.values()) == stock_tokens(asked, TOKENS)


class Interrupter:
    """Asks for an interruption of a running step, at a given layer of it."""

    def __init__(self, model):
        self.model = model
        self.wish: tuple[int, frozenset[str]] | None = None
        decoder = next(m for m in model.runner.model.modules() if hasattr(m, "embed_tokens"))
        for index, layer in enumerate(decoder.layers):
            # In front of the interruption's own hook, as another thread would be between two layers.
            layer.register_forward_pre_hook(lambda *_, index=index: self.ask(index), prepend=True)

    def ask(self, layer: int) -> None:
        if self.wish is not None and self.wish[0] == layer:
            self.model.interruption.ask(self.wish[1])


@pytest.fixture(scope="module")
def interrupter() -> Interrupter:
    return Interrupter(executor(prefix_caching=True))


@pytest.mark.parametrize("share", [1.0, 0.5], ids=["whole step", "half of its rows"])
def test_steps_interrupted_at_any_layer_run_again_to_the_same_tokens(interrupter: Interrupter, share: float):
    model, asked, rng = interrupter.model, prompts(8, seed=4), random.Random(6)
    dropped = 0
    with clean(model) as scheduler:
        names = submit(model, asked, TOKENS, hashed=True)
        out = {name: [] for name in names}
        while scheduler.has_unfinished_requests():
            scheduled = scheduler.schedule()
            scheduled_names = list(scheduled.num_scheduled_tokens)
            interrupter.wish = None
            if rng.random() < 0.5 and len(scheduled_names) > 1:
                leaving = rng.sample(scheduled_names, max(1, round(share * len(scheduled_names))))
                interrupter.wish = rng.randrange(model.layers), frozenset(leaving)
            model.interruption.begin()
            rows = vllm.rows_of(scheduler, scheduled)
            before = {row.request_id: row.context for row in rows}
            for name, ids, _ in model.step(scheduled):
                out[name].extend(ids)
            for name in interrupter.wish[1] if interrupter.wish else ():
                dropped += 1
                assert scheduler.requests[name].num_computed_tokens == before[name]
        interrupter.wish = None
    assert dropped > 20
    assert list(out.values()) == stock_tokens(asked, TOKENS)


def test_blocks_of_an_interrupted_step_are_never_hit(interrupter: Interrupter):
    """vLLM hashes blocks when it schedules them: without withdrawing, B would read KV that A never computed."""
    model = interrupter.model
    first = prompts(1, seed=8, shared=64)[0][:64]
    second = [*first, 11, 12]
    with clean(model) as scheduler:
        a = vllm.make_request("a", first, 8, 0.0, 32)
        scheduler.add_request(a)
        scheduled = scheduler.schedule()
        interrupter.wish = 0, frozenset("a")
        model.interruption.begin()
        assert model.step(scheduled) == []
        interrupter.wish = None
        assert scheduler.cached_blocks == 0
        scheduler.add_request(vllm.make_request("b", second, 8, 1.0, 32))
        scheduled = scheduler.schedule_with(Plan(held=frozenset("a")))
        [row] = vllm.rows_of(scheduler, scheduled)
        assert (row.request_id, row.context) == ("b", 0)
        out = {"a": [], "b": []}
        model.interruption.begin()
        for name, ids, _ in model.step(scheduled):
            out[name].extend(ids)
        rest = drain(model, ["a", "b"])
    tokens = [out[name] + more for name, more in zip("ab", rest, strict=True)]
    assert tokens == stock_tokens([first, second], 8)
