"""Decode steps of which vLLM need not be asked.

Most rows of most steps write one more token into a block that their request holds. vLLM would count up and go on, so
such rows run without it: their tokens are noted here and given to the request at once, before anything but the next
such step can look at it. All others go through vLLM's own `schedule` and `update_from_output`, in the same round and
the same order: prompts, whoever waits, a row that needs a block, fills one that others may hit, or brings its last
token. A round of plain rows alone stands as it is for as many rounds as all of them stay plain, nobody comes or goes
and the plan is the same. Plain rows are set aside meanwhile, as tokens and slots that are taken. Where the rest might
not fit, vLLM is given all of it.

Where nobody is told of each token (`Untold`), or all are told at once, plain rows are not even looked at: they are
quiet for as many rounds as they stay plain and untold, a part of the round's sums, and their tokens are made at once
when something is due. Those of whom all are told at once are a `Chorus` until one of them joins or leaves.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Protocol

from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.outputs import KVConnectorOutput
from vllm.v1.request import Request, RequestStatus

from engines.core.device import QuietRows, Row
from engines.core.policy import STOCK, Plan
from engines.core.together import Chorus, Told
from engines.core.vllm_adapter.plain_decode import Decode, PlainDecodes
from engines.core.vllm_adapter.rounds import Produced, Rounds, finish_step, rows_of
from engines.core.vllm_adapter.scheduling import StageScheduler

SLOTS = 8
"""[chosen] with more of them free it is not looked at who could take them."""

LOOKED_AT = (RequestStatus.WAITING, RequestStatus.PREEMPTED)
"""States of a waiting request that vLLM takes in when there is a slot. Until then it takes in no request behind it."""


class Untold(Protocol):
    """Tokens that nobody is told of when they come, or all at once."""

    def ahead(self, request_id: str) -> int:
        """How many of the request's next ones."""
        ...

    def together(self, request_id: str) -> bool:
        """Whether it can be in a chorus."""
        ...

    def chorus(self, request_ids: Sequence[str]) -> Chorus:
        """These, in their order."""
        ...

    def make(self, request_id: str, count: int, together: bool) -> list[int]:
        """So many have come, `together`: of a chorus: note them and return their ids."""
        ...

    def next_id(self, request_id: str) -> int:
        """The id of the next one, which has yet to come."""
        ...


class LazyDecodes(Rounds):
    """The rounds of a scheduler whose device needs no more than rows, and of whose layers some have no window.

    `untold`: where rows may be quiet; None: nowhere. `reach`: as the device's, of which a quiet row is on one side.
    """

    decodes: dict[str, Decode]
    untold: Untold | None = None
    reach: int | None = None

    def __init__(self, scheduler: StageScheduler) -> None:
        super().__init__(scheduler)
        self.quiet_rows = QuietRows()
        self._quiet: dict[str, Decode] = {}
        self._due: dict[int, list[Decode]] = {}
        self._round = 0
        self._places: dict[str, int] = {}
        self._chorus: Chorus | None = None
        self._in_chorus: list[str] = []
        self._fills: dict[int, list[Decode]] = {}
        self._scheduled = -1
        self._left: set[str] = set()
        self._joined: set[str] = set()
        self._plain = PlainDecodes(scheduler)
        self._standing: list[Decode] = []
        self._stands_for = STOCK
        self._rounds_left = 0

    def settle(self, request_ids: Iterable[str]) -> None:
        self._standing, self._rounds_left = [], 0
        for request_id in request_ids:
            decode = self.decodes.pop(request_id, None)
            if decode is None:
                continue
            self.scheduler.prev_step_scheduled_req_ids.add(request_id)  # vLLM copies all tokens of others
            self._wake(decode)
            self._give(decode)
            if decode.filled is not None:
                self._fill(decode)

    def fill(self) -> None:
        """Let vLLM know of all blocks that are full: somebody looks for what is in them."""
        for decode in self._quiet.values():
            if decode.filled is not None and decode.filled <= self._scheduled:
                self._make(decode)
                self._give(decode)
                self._fill(decode)

    def _give(self, decode: Decode) -> None:
        """Give vLLM's request the tokens that were sampled."""
        if decode.owed:
            decode.request.append_output_token_ids(decode.owed)
            decode.request.num_computed_tokens += len(decode.owed)
            decode.owed = []

    def _fill(self, decode: Decode) -> None:
        """Let vLLM know of a block that its row filled, or fills in the round that has been scheduled."""
        assert decode.filled is not None
        if decode.filled <= self._scheduled:
            size = self.scheduler.block_size
            full = (decode.request.num_computed_tokens + 1) // size * size
            self.scheduler.kv_cache_manager.cache_blocks(decode.request, full)
        decode.filled = None

    def as_before(self, plan: Plan) -> list[Row] | None:
        """The rows of a round that is as the last one was; None where it is another."""
        if not self._rounds_left or (plan is not self._stands_for and plan != self._stands_for):
            return None
        if self.scheduler.would_look(plan):
            return None
        self._rounds_left -= 1
        return [decode.row for decode in self._standing]

    def go_on(self, sampled: Sequence[list[int] | None]) -> list[Produced]:
        """Finishes such a round, in which nobody was dropped or has left."""
        self._round += 1
        produced: list[Produced] = []
        for decode, ids in zip(self._standing, sampled, strict=True):
            assert ids is not None
            decode.owed += ids
            row = decode.row
            decode.row = Row(row.request_id, 1, row.context + 1, True)
            produced.append((row.request_id, ids, False))
        return produced

    def schedule(self, plan: Plan) -> tuple[SchedulerOutput | None, list[Row]]:
        as_before = self.as_before(plan)
        if as_before is not None:
            return None, as_before
        scheduled, rows = self._schedule(plan)
        self._scheduled = self._round
        return scheduled, rows

    def _schedule(self, plan: Plan) -> tuple[SchedulerOutput | None, list[Row]]:
        scheduler = self.scheduler
        self._rounds_left = 0
        due = self._due.pop(self._round, ())
        for decode in due if plan is STOCK else list(self._quiet.values()):
            self._wake(decode)
        fills = self._fills.pop(self._round, ())
        if fills and scheduler.would_look(plan):
            for decode in fills:
                if decode.filled == self._round and self._could_be_hit(decode):
                    self._wake(decode)
        if plan.preempt:
            self.settle(plan.preempt)
            scheduler.preempt(plan.preempt)
        quiet = self._quiet
        runnable = self._not_quiet() if quiet else scheduler.in_order(plan)
        plain: dict[str, Decode] = {}
        full: list[Request] = []
        others: list[Request] = []
        for request in runnable:
            request_id = request.request_id
            decode = self.decodes.get(request_id) or self._enter(request)
            if decode is None:
                others.append(request)
            elif decode.row.context < decode.until:
                if not self._leave(decode, plan):
                    plain[request_id] = decode
            else:
                self.settle([request_id])
                last = self._plain.last(request) <= request.num_computed_tokens
                (others if last or scheduler.offloads else full).append(request)
        tokens, blocks = self._needs(others)
        fits = tokens + len(plain) + len(quiet) + len(full) < self._budget(plan)
        if not fits or self._plain.groups * (blocks + len(full)) > scheduler.free_blocks:
            # vLLM might pass over somebody, or preempt: the choice is its own, with all of them before it.
            self.settle([*plain, *quiet])
            scheduled = scheduler.schedule_with(plan)
            return scheduled, rows_of(scheduler, scheduled)
        if blocks:
            others += full  # blocks are given out in vLLM's order, among them
        else:
            kv_cache, size = scheduler.kv_cache_manager, scheduler.block_size
            for request in full:
                context = request.num_computed_tokens
                if self._plain.one_call_will_do and context % size:  # it fills its block and needs none
                    kv_cache.cache_blocks(request, context + 1)
                    decode = self._plain.of(request)
                    decode.until = decode.lasts
                else:
                    kv_cache.allocate_slots(request, 1)
                    decode = self._plain.of(request)
                self.decodes[request.request_id] = decode
                if not self._leave(decode, plan):
                    plain[request.request_id] = decode
        rows = {request_id: decode.row for request_id, decode in plain.items()}
        scheduled = None
        if others or scheduler.would_look(plan):
            rest = [each for each in runnable if (id := each.request_id) not in plain and id not in quiet]
            scheduled = scheduler.schedule_with(plan, rest=rest, aside=len(plain) + len(quiet))
            rows |= {row.request_id: row for row in rows_of(scheduler, scheduled)}
        ordered = [rows.pop(id) for request in runnable if (id := request.request_id) in rows]
        ordered += rows.values()
        if scheduled is None and plain and self.untold is None and not plan.preempt:
            self._standing, self._stands_for = [plain[row.request_id] for row in ordered], plan
            self._rounds_left = max(0, min([each.until - each.row.context for each in plain.values()]) - 1)
        return scheduled, ordered

    def finish(
        self,
        scheduled: SchedulerOutput | None,
        rows: Sequence[Row],
        sampled: Sequence[list[int] | None],
        transfers: KVConnectorOutput | None,
    ) -> Sequence[Produced | Told]:
        if scheduled is not None:
            self._places = {}
        places = self._placed() if self._in_chorus or self._joined else self._places
        decodes, through_vllm = self.decodes, scheduled.num_scheduled_tokens if scheduled is not None else {}
        produced: dict[str, Produced] = {}
        if scheduled is not None or transfers is not None:
            theirs = [i for i, row in enumerate(rows) if row.request_id in through_vllm]
            produced = {
                each[0]: each
                for each in finish_step(
                    self.scheduler,
                    scheduled if scheduled is not None else SchedulerOutput.make_empty(),
                    [rows[i] for i in theirs],
                    [sampled[i] for i in theirs],
                    transfers,
                )
            }
        outputs: list[Produced] = []
        for row, ids in zip(rows, sampled, strict=True):
            request_id = row.request_id
            if request_id in through_vllm:
                if request_id in produced:
                    outputs.append(produced[request_id])
            elif ids is None:  # dropped by the device: it stays behind the others
                self._rounds_left = 0
            elif request_id in decodes:  # not aborted meanwhile
                decode = decodes[request_id]
                decode.owed += ids
                decode.row = Row(request_id, 1, row.context + 1, True)
                outputs.append((request_id, ids, False))
        if scheduled is not None or transfers is not None:
            self._places = {}
        self._round += 1
        if self._quiet:
            self.quiet_rows.go_on()
        return self._with_chorus(outputs, places) if self._in_chorus or self._joined else outputs

    def catch_up(self, request_id: str) -> None:
        decode = self._quiet.get(request_id)
        if decode is not None and decode.together:
            self._make(decode)

    def look_at(
        self, request_ids: Iterable[str], rows: Sequence[Row], sampled: Sequence[list[int] | None]
    ) -> tuple[Sequence[Row], Sequence[list[int] | None]]:
        decodes = [self._quiet[request_id] for request_id in request_ids if request_id in self._quiet]
        if not decodes or self.untold is None:
            return rows, sampled
        for decode in decodes:
            self._wake(decode)
        own = [decode.row for decode in decodes]
        return [*rows, *own], [*sampled, *([self.untold.next_id(row.request_id)] for row in own)]

    def _not_quiet(self) -> list[Request]:
        """The other running requests, in vLLM's order."""
        quiet, running = self._quiet, self.scheduler.running
        if len(quiet) == len(running):
            return []
        return [request for request in running if request.request_id not in quiet]

    def _placed(self) -> dict[str, int]:
        """Which comes first of running requests; without vLLM, they can only become fewer."""
        if len(self._places) != len(self.scheduler.running):
            self._places = {request.request_id: place for place, request in enumerate(self.scheduler.running)}
        return self._places

    def _with_chorus(self, outputs: list[Produced], places: Mapping[str, int]) -> Sequence[Produced | Told]:
        """Return the step's products with the chorus among them, all in the order of rows."""
        ids = self._in_chorus
        if self._left or self._joined:
            assert self.untold is not None
            left = self._left
            ids = [request_id for request_id in ids if request_id not in left] if left else list(ids)
            ids += self._joined
            ids.sort(key=places.__getitem__)
            self._in_chorus = ids
            self._left, self._joined = set(), set()
            self._chorus = self.untold.chorus(ids) if ids else None
        chorus = self._chorus
        if chorus is None:
            return outputs
        whole = len(ids)
        if not outputs:
            return [Told(chorus, 0, whole)]
        merged: list[Produced | Told] = []
        begin = 0
        for each in outputs:
            end = bisect_left(ids, places[each[0]], key=places.__getitem__)
            if end > begin:
                merged.append(Told(chorus, begin, end))
                begin = end
            merged.append(each)
        if begin < whole:
            merged.append(Told(chorus, begin, whole))
        return merged

    def _leave(self, decode: Decode, plan: Plan) -> bool:
        """Let a plain row be quiet for as long as it can; False when it is of interest at once."""
        if self.untold is None or plan is not STOCK:
            return False
        row, request_id = decode.row, decode.row.request_id
        rounds = decode.until - row.context
        together = decode.together = rounds > 0 and self.untold.together(request_id)
        if not together:
            rounds = min(rounds, self.untold.ahead(request_id))
        elif decode.lasts > decode.until:
            decode.filled = self._round + rounds
            rounds = decode.lasts - row.context
        far = self._far(row.context)
        if self.reach is not None and not far:
            rounds = min(rounds, self.reach - row.context)
        if rounds <= 0:
            return False
        if decode.filled is not None:
            self._fills.setdefault(decode.filled, []).append(decode)
        if together:
            if request_id in self._left:
                self._left.discard(request_id)
            else:
                self._joined.add(request_id)
        decode.quiet_from = self._round
        self._quiet[request_id] = decode
        self._due.setdefault(self._round + rounds, []).append(decode)
        self.quiet_rows.add(row.context, far)
        return True

    def _wake(self, decode: Decode) -> None:
        """If the row is quiet, it is one by itself again, with what has become of it."""
        request_id = decode.row.request_id
        if self.untold is None or self._quiet.get(request_id) is not decode:
            return
        del self._quiet[request_id]
        if decode.together:
            if request_id in self._joined:
                self._joined.discard(request_id)
            else:
                self._left.add(request_id)
        if decode.filled is not None and decode.filled > self._scheduled:
            decode.filled = None
        far = self._far(decode.row.context)
        self._make(decode)
        self.quiet_rows.remove(decode.row.context, far)

    def _make(self, decode: Decode) -> None:
        """Give a quiet row the tokens that it has made."""
        assert self.untold is not None
        request_id = decode.row.request_id
        made = self._round - decode.quiet_from
        if made:
            decode.row = Row(request_id, 1, decode.row.context + made, True)
            decode.owed += self.untold.make(request_id, made, decode.together)
            decode.quiet_from = self._round

    def _could_be_hit(self, decode: Decode) -> bool:
        """Whether the block that the row fills in this round could be what a request which comes in begins with."""
        scheduler, own = self.scheduler, decode.request.block_hashes
        block = decode.until // scheduler.block_size
        slots = (
            scheduler.max_num_active_reqs - len(scheduler.running) - scheduler.num_waiting_for_streaming_input
        )
        if not block or scheduler.kv_holding_waiting or slots > SLOTS:
            return True
        for request in islice(scheduler.waiting, max(0, slots)):
            theirs = request.block_hashes
            if request.status not in LOOKED_AT or (
                len(theirs) > block and theirs[block - 1] == own[block - 1]
            ):
                return True
        return False

    def _far(self, context: int) -> bool:
        return self.reach is not None and context >= self.reach

    def _enter(self, request: Request) -> Decode | None:
        decode = self._plain.look(request)
        if decode is not None:
            self.decodes[request.request_id] = decode
        return decode

    def _needs(self, requests: Sequence[Request]) -> tuple[int, int]:
        """Tokens and new blocks of the next rows of running requests."""
        size, tokens, blocks = self.scheduler.block_size, 0, 0
        for request in requests:
            tokens += request.num_tokens - request.num_computed_tokens
            blocks += max(0, -(-request.num_tokens // size) - self.scheduler.blocks_held(request.request_id))
        return tokens, blocks

    def _budget(self, plan: Plan) -> int:
        budget = self.scheduler.max_num_scheduled_tokens
        return budget if plan.step_budget is None else min(budget, plan.step_budget)
