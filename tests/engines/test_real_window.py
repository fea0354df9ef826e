"""On real CPU execution a windowed model gives the tokens of its dense forward under the same mask, in float32.

After every step all blocks that no request holds are overwritten: with NaN where sinks are pinned, and without sinks
with a large number, as vLLM's own windowed CPU attention multiplies masked values by 0.
"""

import random
from dataclasses import dataclass, field
from functools import cache

import pytest

from engines.core import vllm_adapter as vllm
from engines.core.stage import AttentionWindow
from engines.core.vllm_adapter.bounded import SinkWindowSpec
from engines.core.vllm_adapter.execution import ModelExecutor
from tests.engines.dense import DenseModel, with_dense
from tests.engines.real import clean, stage, submit, words

pytestmark = pytest.mark.slow("runs a model on the CPU")

WINDOW, SINKS, TOKENS = 100, 40, 24
"""No multiples of the 32 tokens of a block."""

BOUNDS = [(WINDOW, SINKS), (WINDOW, 0)]


@cache
def bounded(window: int, sinks: int, **server) -> tuple[ModelExecutor, DenseModel]:
    return with_dense(
        stage("llama_tiny", "thinker", **{"kv_pool_blocks": 64} | server).extended(AttentionWindow(window, sinks))
    )


def spoil(model: ModelExecutor, value: float | None = None) -> None:
    """Overwrite what no request holds and no prefix may find again."""
    pool = model.scheduler.kv_cache_manager.block_pool
    free = [block.block_id for block in pool.free_block_queue.get_all_free_blocks() if block.block_hash is None]
    if value is None:
        sinks = isinstance(model.runner.attn_groups[0][0].kv_cache_spec, SinkWindowSpec)
        value = float("nan") if sinks else 1e4
    for kv in model.runner.kv_caches:
        kv[[*free, pool.null_block.block_id]] = value


def drain(model: ModelExecutor, names: list[str], disturb=lambda: None) -> dict[str, list[int]]:
    """Step until no request has work, and spoil free blocks after each step."""
    scheduler, out = model.scheduler, {name: [] for name in names}
    for _ in range(2000):
        scheduled = scheduler.schedule()
        if not scheduled.total_num_scheduled_tokens:
            model.run(scheduled)  # the worker learns who has finished
            break
        for name, ids, _ in model.step(scheduled):
            out[name].extend(ids)
        disturb()
        spoil(model)
    return out


@pytest.mark.parametrize(("window", "sinks"), BOUNDS)
def test_a_long_prompt_in_pieces_gives_the_tokens_of_the_dense_model(window: int, sinks: int):
    model, dense = bounded(window, sinks)
    prompt = words(900, seed=1)  # steps take 256 tokens
    with clean(model) as scheduler:
        held = []
        said = drain(
            model,
            submit(model, [prompt], 80),
            lambda: held.append(scheduler.allocatable_blocks - scheduler.free_blocks),
        )
    dense.check(prompt, said["r0"], window, sinks)
    # 99 tokens and those of one step lie in at most 4 + 1 blocks, the sinks in 2 more.
    assert held[-2] <= 5 + -(-sinks // 32)
    with pytest.raises(AssertionError):
        dense.check(prompt, said["r0"])


@dataclass
class Dialogue:
    """A session that hears chunks and answers each. `answers`: each with the length of the context before it."""

    context: list[int] = field(default_factory=list)
    answers: list[tuple[int, list[int]]] = field(default_factory=list)

    def hear(self, rng: random.Random) -> list[int]:
        """Return the next chunk, of 20 to 49 tokens."""
        chunk = words(rng.randrange(20, 50), seed=rng.randrange(1000))
        self.context += chunk
        return chunk

    def answer(self, tokens: list[int]) -> None:
        """Keep an answer, whose last token never enters the context."""
        self.answers.append((len(self.context), tokens))
        self.context += tokens[:-1]


@pytest.mark.parametrize(("window", "sinks"), BOUNDS)
def test_sessions_give_the_tokens_of_the_dense_model_also_after_a_restart(window: int, sinks: int):
    model, dense = bounded(window, sinks)
    rng, restarts = random.Random(3), []
    sessions = {"s0": Dialogue(), "s1": Dialogue()}

    def restart() -> None:
        """Preempt all that runs, now and then: they compute their contexts again."""
        if rng.random() < 0.1 and model.scheduler.running:
            restarts.append(len(model.scheduler.running))
            model.scheduler.reset_prefix_cache(reset_running_requests=True)

    with clean(model) as scheduler:
        for frame in range(7):
            for name, session in sessions.items():
                scheduler.add_request(vllm.make_chunk(name, session.hear(rng), 8, float(frame)))
            for name, tokens in drain(model, list(sessions), restart).items():
                sessions[name].answer(tokens)
        scheduler.abort(list(sessions))
    assert restarts
    for session in sessions.values():
        assert len(session.answers) == 7 and len(session.context) > window + sinks + 50
        expected = dense.next_tokens(session.context, window, sinks)
        for length, tokens in session.answers:
            assert len(tokens) == 8 and tokens == expected[length - 1 : length + 7]


@pytest.mark.parametrize(("window", "sinks"), BOUNDS)
def test_prefix_hits_give_the_tokens_of_the_dense_model(window: int, sinks: int):
    model, dense = bounded(window, sinks, prefix_caching=True)
    shared = words(352, seed=5)
    asked = [shared, shared + words(70, seed=7)]
    with clean(model) as scheduler:
        first = drain(model, submit(model, asked[:1], TOKENS, hashed=True))
        scheduler.add_request(vllm.make_request("r1", asked[1], TOKENS, 0.0, scheduler.block_size))
        scheduled = scheduler.schedule()
        [row] = vllm.rows_of(scheduler, scheduled)
        assert row.context == 320  # vLLM keeps what a hit of all but the last token needs
        ids = [token for _, tokens, _ in model.step(scheduled) for token in tokens]
        spoil(model)
        second = ids + drain(model, ["r1"])["r1"]
    dense.check(asked[0], first["r0"], window, sinks)
    dense.check(asked[1], second, window, sinks)


def test_sinks_change_what_is_said_once_the_window_has_left_them():
    answers = []
    asked = [words(WINDOW - TOKENS, seed=8), words(400, seed=9)]
    for window, sinks in BOUNDS:
        model, _ = bounded(window, sinks)
        with clean(model):
            answers.append(list(drain(model, submit(model, asked, TOKENS)).values()))
    (short, long), (short_without, long_without) = answers
    assert short == short_without
    assert long != long_without
