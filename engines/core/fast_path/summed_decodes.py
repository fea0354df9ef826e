"""Summed decodes: simple decodes whose rows a step holds only as sums, while nobody needs their tokens."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from engines.core.device import Row, SummedRows
from engines.core.fast_path.decode_batch import BatchMembers, DecodeBatch
from engines.core.fast_path.unstreamed_tokens import UnstreamedTokens
from engines.core.policy import Plan
from engines.core.vllm_adapter.simple_decode import SimpleDecode, SimpleDecodes


class SummedDecodes:
    """The summed decodes of one replica.

    Each is summed for a known number of steps. Its tokens are made together when these steps are over, or when it is
    removed earlier. `rows`: sums over their rows of the coming step or the step under way. `members`: the ids among
    them in the decode batch.

    `unstreamed`: None while no rows are to be summed. `reach`: tokens that windowed layers see at most; None: no layer
    has a window. `step`: number of the coming step or the step under way; `scheduled_step`: of the newest scheduled
    one.
    """

    def __init__(self, simple: SimpleDecodes) -> None:
        self.simple = simple
        self.unstreamed: UnstreamedTokens | None = None
        self.reach: int | None = None
        self.rows = SummedRows()
        self.decodes: dict[str, SimpleDecode] = {}
        self.members = BatchMembers(self._batch)
        self.step = 0
        self.scheduled_step = -1
        self._ends: defaultdict[int, list[SimpleDecode]] = defaultdict(list)
        self._fills: defaultdict[int, list[SimpleDecode]] = defaultdict(list)

    def add(self, decode: SimpleDecode) -> bool:
        """Sum a decode's rows for as long as possible; False if its next row has to be listed."""
        if self.unstreamed is None:
            return False
        row, request_id = decode.row, decode.row.request_id
        steps = decode.until - row.context
        decode.batched = steps > 0 and self.unstreamed.may_batch(request_id)
        if not decode.batched:
            steps = min(steps, self.unstreamed.ahead(request_id))
        elif decode.lasts > decode.until:
            decode.fills_at = self.step + steps
            steps = decode.lasts - row.context
        far = self._far(row.context)
        if self.reach is not None and not far:
            steps = min(steps, self.reach - row.context)
        if steps <= 0:
            return False
        if decode.fills_at is not None:
            self._fills[decode.fills_at].append(decode)
        if decode.batched:
            self.members.join(request_id)
        decode.summed_from = self.step
        self.decodes[request_id] = decode
        self._ends[self.step + steps].append(decode)
        self.rows.add(row.context, far)
        return True

    def remove(self, decode: SimpleDecode) -> None:
        """Take a decode out of the sums: its row is listed from this step on. Does nothing for a decode that is not
        summed."""
        if self.decodes.get(decode.row.request_id) is not decode:
            return
        del self.decodes[decode.row.request_id]
        if decode.batched:
            self.members.leave(decode.row.request_id)
        if decode.fills_at is not None and decode.fills_at > self.scheduled_step:
            decode.fills_at = None
        far = self._far(decode.row.context)
        self._make(decode)
        self.rows.remove(decode.row.context, far)

    def remove_ended(self) -> None:
        """Remove the decodes whose summed steps end now."""
        for decode in self._ends.pop(self.step, ()):
            self.remove(decode)

    def remove_all(self) -> None:
        """Remove all decodes, for a plan that may name them."""
        self._ends.pop(self.step, None)
        for decode in [*self.decodes.values()]:
            self.remove(decode)

    def remove_hit(self, plan: Plan) -> None:
        """Remove the decodes that fill a block now, if a request that this step takes in could begin with that
        block."""
        fills = self._fills.pop(self.step, ())
        if fills and self.simple.scheduler.would_look(plan):
            for decode in fills:
                if decode.fills_at == self.step and self.simple.could_be_hit(decode):
                    self.remove(decode)

    def remove_requests(self, request_ids: Iterable[str]) -> tuple[list[Row], list[list[int] | None]]:
        """Remove these requests from the sums of the step under way; returns their rows and token ids."""
        decodes = [self.decodes[request_id] for request_id in request_ids if request_id in self.decodes]
        for decode in decodes:
            self.remove(decode)
        rows = [decode.row for decode in decodes]
        return rows, [[self._next_id(row)] for row in rows]

    def make_batched(self, request_id: str) -> None:
        """Note the tokens that a member of the decode batch has sampled, before its counts are read."""
        decode = self.decodes.get(request_id)
        if decode is not None and decode.batched:
            self._make(decode)

    def cache_full_blocks(self) -> None:
        """Let vLLM know of all full blocks, before somebody looks for their content. The requests stay summed."""
        for decode in self.decodes.values():
            if decode.fills_at is not None and decode.fills_at <= self.scheduled_step:
                self._make(decode)
                self.simple.sync(decode)
                self.cache_full_block(decode)

    def cache_full_block(self, decode: SimpleDecode) -> None:
        """Let vLLM know of the block, if any, that the decode filled or fills in the scheduled step."""
        if decode.fills_at is not None and decode.fills_at <= self.scheduled_step:
            self.simple.cache_full_block(decode)
        decode.fills_at = None

    def advance(self) -> None:
        """End the step."""
        self.step += 1
        if self.decodes:
            self.rows.advance()

    def _make(self, decode: SimpleDecode) -> None:
        """Make the tokens of the steps since the decode was summed, and advance its row."""
        assert self.unstreamed is not None
        steps = self.step - decode.summed_from
        if steps:
            row = decode.row
            decode.row = Row(row.request_id, 1, row.context + steps, True)
            decode.unsynced += self.unstreamed.make(row.request_id, steps, decode.batched)
            decode.summed_from = self.step

    def _far(self, context: int) -> bool:
        return self.reach is not None and context >= self.reach

    def _next_id(self, row: Row) -> int:
        assert self.unstreamed is not None
        return self.unstreamed.next_id(row.request_id)

    def _batch(self, request_ids: Sequence[str]) -> DecodeBatch:
        assert self.unstreamed is not None
        return self.unstreamed.batch(request_ids)
