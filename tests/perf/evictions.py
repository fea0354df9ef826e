"""What choosing whom to evict costs: LRU, the eviction index and the scan it replaces (paper Table 1, overhead).

    python -m tests.perf.evictions

A full pool of 36,000 blocks, about what one H200 has for the thinker, held by 64 idle sessions. Turns of others come in
pieces of four blocks, each of which has to be taken from somebody, while playback reports move sessions about. Real
timers around vLLM's own call for free blocks; the same events for all three, within one process.
"""

import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from engines.core import vllm_adapter as vllm
from engines.core.vllm_adapter.eviction import Evictions
from engines.core.vllm_adapter.free_queue import install
from engines.server import ServerParams, resolve
from engines.systems.liveserve.next_use import NextUseIndex, TailScan

BLOCKS = 36_000
SESSIONS = 64
PIECE_BLOCKS = 4
"""[chosen] 64 tokens: a short turn, or what a few requests decode between two evictions."""
TURN_PIECES = 32
TURNS = 8
HORIZON_S = 60.0
"""Next uses lie within a minute, as long replies do."""


@dataclass(frozen=True)
class Cost:
    """Of one way to choose. `evictions_ms`: of each allocation that had to evict, shape (allocations,).
    `upkeep_ms`: of giving a turn's blocks back and moving its session, for each block."""

    name: str
    evictions_ms: np.ndarray
    upkeep_ms: float


def measure(name: str, index: NextUseIndex | TailScan | None) -> Cost:
    """The cost over `TURNS` turns of `TURN_PIECES` allocations each, after the pool has been filled; None: LRU."""
    deployment = resolve(ServerParams.model_validate({}))
    stage = replace(
        deployment.stages[deployment.entry], kv_blocks=BLOCKS + 1, prefix_caching=True, host_kv_gb=0.0
    )
    manager = vllm.make_scheduler(stage, vllm.StageScheduler).kv_cache_manager
    owners: dict[int, Mapping[int, int]] = {}
    queue = manager.block_pool.free_block_queue
    if index is not None:
        queue = install(manager.block_pool, index, owners)
    rng = np.random.default_rng(0)
    size, upkeep_s = stage.block_size, 0.0

    def moves(session: int) -> None:
        next_use_s = float(rng.uniform(0, HORIZON_S))
        if index is not None:
            index.key(session, next_use_s)

    def serve(session: int, pieces: int, piece_blocks: int) -> float:
        """One turn; seconds of returning its blocks and of what the index learns with them."""
        tokens = [session + 1] * (pieces * piece_blocks * size)
        request = vllm.make_request(str(session), tokens, 1, 0.0, size, session)
        for _ in range(pieces):
            assert manager.allocate_slots(request, piece_blocks * size) is not None
            request.num_computed_tokens += piece_blocks * size
            moves(int(rng.integers(SESSIONS)))
        for position, block_id in enumerate(manager.get_block_ids(str(session))[0]):
            owners[block_id] = {session: position}
        begun = time.perf_counter()
        manager.free(request)
        moves(session)
        return time.perf_counter() - begun

    for session in range(SESSIONS):
        serve(session, 1, BLOCKS // SESSIONS)
    evictions = Evictions()
    evictions.watch(queue)
    for turn in range(TURNS):
        upkeep_s += serve(SESSIONS + turn, TURN_PIECES, PIECE_BLOCKS)
    # The first allocations take what division has left empty.
    assert len(evictions.seconds) >= TURNS * TURN_PIECES - BLOCKS % SESSIONS
    return Cost(
        name, 1e3 * np.array(evictions.seconds), 1e3 * upkeep_s / (TURNS * TURN_PIECES * PIECE_BLOCKS)
    )


def main() -> int:
    print(f"evicting {PIECE_BLOCKS} blocks of {BLOCKS:,}, {SESSIONS} idle sessions")
    print("                  allocations   mean ms    P90 ms  returned block ms  paper mean, P90 ms")
    lru, heap, scan = (
        measure("LRU", None),
        measure("index", NextUseIndex()),
        measure("tail scan", TailScan()),
    )
    for cost, paper in ((lru, ""), (heap, "0.093, 0.222"), (scan, "5.311, 8.270")):
        ms = cost.evictions_ms
        print(
            f"{cost.name:<18}{len(ms):>11}{ms.mean():>10.4f}{np.quantile(ms, 0.9):>10.4f}"
            f"{cost.upkeep_ms:>19.5f}{paper:>20}"
        )
    ratios = [f(scan.evictions_ms) / f(heap.evictions_ms) for f in (np.mean, lambda ms: np.quantile(ms, 0.9))]
    print(f"tail scan / index{'':>12}{ratios[0]:>9.0f}x{ratios[1]:>9.0f}x{'':>19}{'57x, 37x':>20}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
