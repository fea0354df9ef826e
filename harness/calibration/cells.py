"""The grid of steps that a profile measures: decode batches, their contexts, and prefill chunks beside them."""

import itertools
from dataclasses import dataclass

import numpy as np

from engines.core.engine import StageEngine

SHORTEST = 32
"""Tokens of the shortest context of a decode, and of the smallest prefill chunk a quarter of it."""

GROWTH = 64
"""Tokens that a decode may grow by while the points of its group are measured."""

POOL_SHARE = 0.9
"""Share of the KV pool that a cell may fill. Nothing is then preempted while the cell is measured."""


@dataclass(frozen=True)
class Group:
    """Decodes that stay while prefill chunks come and go. `context`: tokens each decode has on average."""

    decodes: int
    context: int


@dataclass(frozen=True)
class Chunk:
    """A prefill of `tokens` on top of `cached` ones; `ends`: it is the prompt's last and samples a token."""

    tokens: int
    cached: int
    ends: bool


Cell = tuple[Group, Chunk | None]


@dataclass(frozen=True)
class Limits:
    """The bounds of the grid: requests and tokens of a step, tokens of a request and of the KV pool."""

    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int
    pool_tokens: int


def limits_of(engine: StageEngine, max_model_len: int) -> Limits:
    scheduler = engine.scheduler
    return Limits(
        scheduler.max_num_active_reqs,
        scheduler.max_num_scheduled_tokens,
        max_model_len,
        int(POOL_SHARE * scheduler.allocatable_blocks * scheduler.block_size),
    )


def grid(limits: Limits, quick: bool = False) -> dict[Group, list[Chunk | None]]:
    """Groups of decodes, none among them, each with the chunks that are added to it; None: decodes alone.

    Batches double up to one below max_num_seqs, contexts and chunks grow geometrically. Every group meets each size of
    chunk once; how much of its prompt is cached already, and whether it ends, changes from group to group.
    """
    longest = int((limits.max_model_len - GROWTH) / 1.25)
    batches = _geometric(1, limits.max_num_seqs - 1, 4 if quick else 2)
    contexts = _geometric(SHORTEST, max(SHORTEST, longest), (longest / SHORTEST) ** (1 / (2 if quick else 3)))
    groups = [Group(0, 0)] + [
        Group(decodes, context)
        for decodes, context in itertools.product(batches, contexts)
        if decodes * (1.25 * context + GROWTH) <= limits.pool_tokens
    ]
    found: dict[Group, list[Chunk | None]] = {}
    for index, group in enumerate(groups):
        room = min(limits.max_num_batched_tokens - group.decodes, limits.max_model_len // 2)
        sizes = _geometric(SHORTEST // 4, room, 5 if quick else 2.5)
        left = limits.pool_tokens - group.decodes * (1.25 * group.context + GROWTH)
        chunks: list[Chunk | None] = [None] if group.decodes else []
        for position, tokens in enumerate(sizes):
            most = int(min(limits.max_model_len - tokens - 8, left - tokens - 64))
            if most < 0:
                continue
            cached = (0, most // 8, most // 2, 0, most)[(index + position) % 5]
            chunks.append(Chunk(tokens, cached, ends=bool((index + position) % 2)))
        found[group] = chunks
    return found


def _geometric(first: int, last: int, ratio: float) -> list[int]:
    """Whole numbers from `first` to `last`, each about `ratio` times the one before."""
    if last < first:
        return []
    steps = max(1, round(np.log(last / first) / np.log(ratio))) if last > first else 0
    return sorted({round(first * (last / first) ** (i / max(1, steps))) for i in range(steps + 1)})
