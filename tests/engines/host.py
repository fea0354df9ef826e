"""A stage with host memory, stepped by hand: what the loop does with transfers, on a clock that tests move."""

from engines.core import vllm_adapter as vllm
from engines.core.stage import HostCopies
from engines.core.vllm_adapter.execution import ModelExecutor, in_order
from engines.core.vllm_adapter.offload import HostTransfers
from tests.engines.stage import BLOCK_BYTES, check_pool, make_scheduler

BLOCKS_PER_S = 1000.0
STEP_S = 0.01


class Engine:
    """A copy engine on the bench's clock."""

    bandwidth = BLOCKS_PER_S * BLOCK_BYTES

    def __init__(self, bench: "Bench") -> None:
        self.bench = bench
        self.free_s = 0.0

    def copy(self, size_bytes: float, not_before: float = 0.0) -> float:
        self.free_s = max(self.free_s, self.bench.now, not_before) + size_bytes / self.bandwidth
        return self.free_s

    def queued_s(self) -> float:
        return max(0.0, self.free_s - self.bench.now)


class Bench:
    """One replica: `step` is one round of the loop, `turn` a request of a session. `model`: a real executor."""

    def __init__(
        self,
        blocks: int = 101,
        host_blocks: int = 10_000,
        model: ModelExecutor | None = None,
        copies: HostCopies = HostCopies(),
    ) -> None:
        self.model = model
        self.scheduler = (
            make_scheduler(blocks=blocks, prefix_caching=True, host_blocks=host_blocks)
            if model is None
            else model.scheduler
        )
        self.now = 0.0
        memory = None if model is None else model.host_memory()
        self.transfers = HostTransfers(Engine(self), Engine(self), BLOCK_BYTES, memory, copies)
        self.said: dict[str, list[int]] = {}
        self.loads: list[tuple[str, int]] = []
        self.waited_s = 0.0
        self.finished: list[str] = []
        self.landed: list[tuple[int, int]] = []

    def tokens(self, session: int, count: int) -> list[int]:
        return [10_000 * session + i for i in range(count)]

    def turn(self, name: str, session: int, prompt: int, output: int = 2) -> None:
        self.ask(name, session, self.tokens(session, prompt), output)

    def ask(self, name: str, session: int, tokens: list[int], output: int, stored: bool = True) -> None:
        hashes = self.scheduler.remember(session, tokens)
        size = self.scheduler.block_size
        request = vllm.make_request(name, tokens, output, self.now, size, session, (), hashes, stored=stored)
        self.scheduler.add_turn(session, request)

    def step(self) -> dict[str, int]:
        """One round; returns the tokens that each request computed."""
        scheduler, transfers = self.scheduler, self.transfers
        output = scheduler.schedule()
        rows = vllm.rows_of(scheduler, output)
        begin_s, loading = transfers.begin(scheduler, output, self.now)
        self.loads += loading.items()
        self.waited_s += begin_s - self.now
        self.now = begin_s + (STEP_S if rows else 0.0)
        sampled: list[list[int] | None] = [[7] if row.samples else [] for row in rows]
        if self.model is not None:
            sampled = in_order(rows, self.model.run(output))
        transfers.end(output, frozenset(), scheduler.requests)
        arrived = transfers.finished(self.now)
        for request_id, ids, finished in vllm.finish_step(scheduler, output, rows, sampled, arrived):
            self.said.setdefault(request_id, []).extend(ids)
            if finished:
                self.finished.append(request_id)
        if arrived is not None:
            scheduler.preloads.receive(transfers.arrived_s)
        self.landed += scheduler.preloads.landed
        scheduler.preloads.landed = []
        return {row.request_id: row.tokens for row in rows}

    def arrive(self) -> None:
        """Let time pass until the next transfer has ended."""
        self.now = max(self.now, self.transfers.next_s or 0.0)

    def settle(self, limit: int = 2000) -> None:
        """Step until nothing is left to do, jumping to the next transfer when nothing can run."""
        for _ in range(limit):
            transfers, scheduler = self.transfers, self.scheduler
            if not scheduler.requests and transfers.next_s is None and not scheduler.finished_req_ids:
                return
            if not self.step():
                self.arrive()
        raise AssertionError(f"still at work after {limit} rounds: {list(self.scheduler.requests)}")

    def check(self) -> None:
        """Each block is free or held, and found by its hash."""
        pool = self.scheduler.kv_cache_manager.block_pool
        free, _ = check_pool(pool)
        assert len(free) == self.scheduler.free_blocks
        for block in pool.blocks:
            if block.block_hash is not None:
                assert pool.cached_block_hash_to_block.contain(block.block_hash, block.block_id)

    def resident(self, session: int) -> int:
        history = self.scheduler.histories.get(session)
        return 0 if history is None else self.scheduler.preloads.resident(history)

    def missing(self, session: int) -> int:
        history = self.scheduler.histories.get(session)
        return 0 if history is None else self.scheduler.preloads.missing(history)

    def load(self, session: int, blocks: int) -> bool:
        history = self.scheduler.histories.get(session)
        return history is not None and self.scheduler.preloads.start(session, history, blocks)
