"""Section 4.2: what attention over first and last tokens in half of the layers does to memory, and its search."""

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from reports.claims.quantities import Panels
from reports.claims.stated import claim, level, times
from reports.figures.forms import figure, lines
from reports.papers.omniinfer.common import SEED_RUNS, SHORT, seeded

TITLE = "OmniAttn: requests that fit into memory, KV handed over, and the search for a pattern"

EXPERIMENTS = SEED_RUNS
QUICK = SHORT
PAPER: dict[str, Any] = {"compressed layers": 30, "layers": 61, "beta": 0.2}
"""The pattern and the division of memory that the open-source code ships for DeepSeek-R1."""

BLOCK = 128
POOL = 1200
"""[chosen] blocks of all layers."""
LENGTH = 3500 + 1000
"""Tokens of a request at its end, on average (section 6)."""
THRESHOLD = 0.94
"""[chosen] of 1 minus the error of the output; no threshold on accuracy is stated."""
TOY = {"layers": 16, "tokens": 64, "hidden": 32, "heads": 2}
"""[chosen] a decoder of random weights that is quick to ask."""


def shipped() -> Any:
    """30 of 61 layers; which ones does not matter to memory."""
    from engines.systems.omniinfer.attention_pattern import AttentionPattern

    return AttentionPattern.of("01" * 30 + "0", 61)


@cache
def held(tokens: int, compressed: bool) -> int:
    """Return the requests of this length that vLLM's KV manager has room for, by its own block tables."""
    from engines.core import vllm_adapter as vllm
    from engines.core.stage import Stage
    from engines.models import Decoder

    stage = Stage(
        name="decode",
        decoder=Decoder(layers=61, hidden=1024, heads=8, kv_heads=1, head_dim=64, ffn=1024, vocab=1000),
        gpus=((0,),),
        memory_share=0.9,
        max_num_seqs=256,
        max_num_batched_tokens=65_536,
        max_model_len=16_384,
        max_tokens=16,
        prefix_caching=False,
        block_size=BLOCK,
        kv_blocks=POOL + 1,
    )
    if compressed:
        stage = shipped().on(stage)
    scheduler = vllm.make_scheduler(replace(stage, admit="chunk"), vllm.StageScheduler)
    most = 0
    for number in range(stage.max_num_seqs):
        # One at a time, so that the pool holds contexts and no prompt under way.
        scheduler.add_request(vllm.make_request(str(number), [1] * tokens, 512, 0.0, None))
        for _ in range(2):
            output = scheduler.schedule()
            rows = vllm.rows_of(scheduler, output)
            vllm.finish_step(scheduler, output, rows, [[7] if row.samples else [] for row in rows])
        if scheduler.waiting or any(request.num_preemptions for request in scheduler.requests.values()):
            break
        most = len(scheduler.running)
    return most


def divided(tokens: int) -> float:
    """The same by the code's fixed division of memory."""
    from engines.systems.omniinfer.attention_pattern import split_pool

    full, compressed = split_pool(POOL, 32, PAPER["compressed layers"], PAPER["beta"])
    return min(full / -(-tokens // BLOCK), compressed / (shipped().kept_tokens(tokens) / BLOCK))


def moved(tokens: int) -> float:
    """Returns the share of a prompt's KV that a hand-over moves."""
    return sum(shipped().handover_bytes(tokens, BLOCK, 1)) / (-(-tokens // BLOCK) * BLOCK * 61)


def regular_patterns(layers: int, count: int) -> list[tuple[bool, ...]]:
    """Return the obvious patterns with this number of compressed layers: first, last, middle, evenly spread."""
    before = (layers - count) // 2
    spread = np.zeros(layers, bool)
    spread[np.linspace(0, layers - 1, count).round().astype(int)] = count > 0
    runs = [tuple(first <= i < first + count for i in range(layers)) for first in (0, layers - count, before)]
    return [*runs, tuple(spread.tolist())]


@cache
def searched_over(seed: int) -> dict[str, float]:
    """Return the layers that the search compresses above the threshold over the most of as many random patterns and of
    regular ones; nothing without pymoo."""
    from engines.systems.omniinfer.attention_error import RandomDecoder
    from engines.systems.omniinfer.pattern_search import Search, search
    from workloads.errors import UserError

    decoder, layers = RandomDecoder(seed=seed, **TOY), TOY["layers"]

    def kept(pattern: tuple[bool, ...]) -> float:
        return 1.0 - decoder.error(pattern, 8, 24)

    try:
        result = search(kept, layers, THRESHOLD, seed, Search(population=24, generations=20))
    except UserError:
        return {}
    rng = np.random.default_rng(seed)
    tried = [tuple(bool(each) for each in row) for row in rng.random((result.scored, layers)) < 0.5]
    by_hand = [pattern for count in range(layers + 1) for pattern in regular_patterns(layers, count)]
    return {
        name: sum(result.pattern) / max(1, *(sum(each) for each in patterns if kept(each) >= THRESHOLD))
        for name, patterns in (("random", tried), ("known", by_hand))
    }


CLAIMS = {
    "attention-divided": claim(
        "(ours) the division of memory in the open-source code holds 1.73 times the tokens in full layers",
        times(1.73, within=0.01),
        seeded(lambda _: 1 + (1 - PAPER["beta"]) * PAPER["compressed layers"] / 33),
        check="the division follows from beta and the pattern",
    ),
    "attention-held": claim(
        "(ours) a pool holds more requests of 4,500 tokens, with vLLM's block tables of 61 layers",
        times((1.3, 2.0), words="more"),
        seeded(lambda _: held(LENGTH, True) / held(LENGTH, False)),
    ),
    "attention-moved": claim(
        "(ours) prefill hands over the first and last blocks of compressed layers only (share of 3,500 tokens)",
        level((0.4, 0.65), "%", neutral=1.0, words="less than all"),
        seeded(lambda _: moved(3500)),
        check="the pattern gives it",
    ),
    "attention-searched": claim(
        "(ours) the genetic algorithm finds better patterns than chance (layers compressed; random weights, error)",
        times((1.05, 3.0), words="efficiently"),
        seeded(lambda seed: searched_over(seed).get("random")),
        remark="an error of attention on random weights, and no accuracy of a model",
    ),
    "attention-searched-known": claim(
        "(ours) and better than runs of layers and evenly spread layers, which it does not know",
        times((1.05, 3.0), words="more layers"),
        seeded(lambda seed: searched_over(seed).get("known")),
        remark="an error of attention on random weights, and no accuracy of a model",
    ),
}

LENGTHS = (500, 1000, 2000, 4000, 8000, 16_000)
_AXES: dict[str, Any] = {"doubling": LENGTHS, "xlabel": "tokens of a request"}


def _held(panels: Panels) -> dict[str, dict[int, float]]:
    return {
        "full attention": {tokens: held(tokens, False) for tokens in LENGTHS},
        "OmniAttn, one pool": {tokens: held(tokens, True) for tokens in LENGTHS},
        "OmniAttn, pool divided by β = 0.2": {tokens: divided(tokens) for tokens in LENGTHS},
    }


draw = figure(
    TITLE,
    lines(None, _held, yscale="log", ylabel=f"requests in {POOL} blocks", **_AXES),
    lines(
        None,
        lambda panels: {"": {tokens: moved(tokens) for tokens in LENGTHS}},
        percent=(0, 1.05),
        ylabel="KV handed over",
        **_AXES,
    ),
    modelled=True,
    caption="30 of 61 layers keep 128 first and 384 last tokens. By vLLM's KV manager, without requests.",
)
