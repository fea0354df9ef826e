"""Section 4.2: what attention over first and last tokens in half of the layers does to memory.

A reader decides with it how many more requests a pool holds. The paper's search for the layers is scored by a model's
accuracy on held-out data, which needs DeepSeek-R1's weights, so no claim is made on it.
"""

from dataclasses import replace
from functools import cache
from typing import Any

from reports.claims.quantities import Panels
from reports.claims.stated import claim, level, times
from reports.figures.forms import figure, lines
from reports.papers.omniinfer.common import SEED_RUNS, SHORT, seeded

TITLE = "OmniAttn: requests that fit into memory, and KV handed over"

EXPERIMENTS = SEED_RUNS
QUICK = SHORT
PAPER: dict[str, Any] = {"compressed layers": 30, "layers": 61, "beta": 0.2}
"""The pattern and the division of memory that the open-source code ships for DeepSeek-R1."""

BLOCK = 128
POOL = 1200
"""[chosen] blocks of all layers."""
LENGTH = 3500 + 1000
"""Tokens of a request at its end, on average (section 6)."""


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
