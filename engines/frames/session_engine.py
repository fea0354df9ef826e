"""One replica that serves interaction sessions: a session is one long request, which its audio extends.

Built on vLLM's resumable requests (Metronome section 2, specification 2.1): chunks wait in the scheduler until the
earlier ones have been answered, and an idle session keeps its KV.
"""

import asyncio
import math
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from engines.core import vllm_adapter as vllm
from engines.core.device import Row
from engines.core.engine import StageEngine
from engines.core.fast_path.decode_batch import BatchTokens, Produced
from engines.core.policy import Policy, RequestView
from engines.core.recorder import Recorder, StepLog
from engines.core.replica import Replica
from engines.core.request import StageRequest
from engines.core.requests import RequestTable
from engines.core.step_cost import StepWork
from engines.frames.listeners import CallListeners
from workloads.errors import UserError
from workloads.trace import Turn

ALLOC_FAILS = ("alloc_fail_waiting", "alloc_fail_running")
"""The scheduler's counters of failed allocations, in the order of the values of an `alloc_fail` event."""


class CallStepLog(StepLog):
    """The log of a replica that serves calls: steps as for turns, and allocations that vLLM's pool refused. A round in
    which nothing ran and nothing changed leaves no row."""

    def __init__(self, replica: Replica, recorder: Recorder) -> None:
        super().__init__(replica, recorder)
        self._alloc_fails = (0, 0)
        self._recorded: tuple[int, ...] = ()

    def record(
        self,
        start_s: float,
        end_s: float,
        work: StepWork,
        tokens: int = 0,
        held: int = 0,
        preempted: int = 0,
        sms: float = math.nan,
        queued: int = 0,
    ) -> None:
        scheduler, counters = self.scheduler, self.scheduler.counters
        fails = (counters[ALLOC_FAILS[0]], counters[ALLOC_FAILS[1]])
        for path, (count, before) in enumerate(zip(fails, self._alloc_fails, strict=True)):
            if count > before:
                self.recorder.event(start_s, "alloc_fail", -1, -1, self.stage, path)
        self._alloc_fails = fails
        state = (
            len(scheduler.running),
            len(scheduler.requests),
            scheduler.num_waiting_for_streaming_input,
            scheduler.free_blocks,
        )
        if work.requests or preempted or state != self._recorded:
            self._recorded = state
            super().record(start_s, end_s, work, tokens, held, preempted, sms, queued)


OnMaxLen = Literal["crash_all", "finish_one"]
"""Effect of a session that reaches max_model_len: the engine dies with all sessions, or that session ends."""

Answers = list[tuple[int, int, list[int]]]
"""Session, the frame that it answers, and token ids, in the order of production."""


class Chunk(NamedTuple):
    """One frame's input in a tick: `prompt` token ids, answered with `max_tokens`, or up to the token `end`.

    `turn`: the frame. `audio_at`: places in the prompt; a frame's length of audio begins at each. `features`: these
    sounds, if the model hears them.
    """

    turn: Turn
    prompt: list[int]
    max_tokens: int
    audio_at: tuple[int, ...] = (0,)
    features: Sequence[Any] = ()
    end: int | None = None


@dataclass(slots=True, eq=False)
class SessionRequest(StageRequest):
    """A session at the engine. `coming`: chunks that are not part of its context yet. `closed`: it takes no more.

    `turn` is the frame that it answers; `produced` and `output` count on over all frames. `answered`: the frame whose
    last tokens have yet to be delivered, when the next one has become part of the context meanwhile.
    """

    coming: deque[Chunk] = field(default_factory=deque)
    closed: bool = False
    answered: int | None = None


class SessionEngine:
    """A replica whose requests are sessions: their input and output around the loop of `engine`.

    `answered` is called after each step with tokens, `failed(request, reason)` when the engine ends a session.
    `on_max_len`: the effect of a session whose context is full; without one, `serve` raises UserError. `crashed`: it
    serves nobody any more. `longest_queue`: most chunks of one session that waited to become part of its context.
    `answers`: takes all answers. `listeners`: the policies' view of the listeners.
    """

    def __init__(
        self,
        replica: Replica,
        recorder: Recorder,
        on_max_len: OnMaxLen | None,
        policy: Policy | None = None,
        answers: Answers | None = None,
        listeners: CallListeners | None = None,
    ) -> None:
        self.output = SessionOutput(replica, recorder, answers, listeners)
        self.engine = StageEngine(replica, self.output, recorder, policy)
        self.recorder = recorder
        self.scheduler = replica.scheduler
        self.scheduler.on_chunk = self._joined
        self.max_model_len = replica.stage.max_model_len
        self.on_max_len = on_max_len
        self.failed: Callable[[SessionRequest, str], None]
        self.crashed = False
        self.max_len_hits = 0
        self.longest_queue = 0
        self._stage = replica.stage
        self._extending = False
        self._loop = asyncio.get_running_loop()

    def on_answer(self, answered: Callable[[], None]) -> None:
        self.output.answered = answered

    def append(self, request: SessionRequest, chunk: Chunk) -> None:
        """Feed the session's next chunk; the first one opens it. Chunks for a closed session are dropped."""
        turn = chunk.turn
        self.recorder.event(self._loop.time(), "arrive", turn.session, turn.turn, self._stage.name)
        self.engine.enqueue(Append(self, request, chunk))

    def close(self, request: SessionRequest) -> None:
        """End the session; its KV is free when the step under way has ended."""
        request.closed = True
        self.engine.enqueue(Close(request))

    def extend(self, table: RequestTable, request: SessionRequest, chunk: Chunk) -> None:
        """Hand a chunk to vLLM's scheduler."""
        table.requests[request.id] = request
        if not request.coming:
            request.arrive_s = self._loop.time()
        request.coming.append(chunk)
        self._extending = True
        self.scheduler.add_request(
            vllm.make_chunk(
                request.id,
                chunk.prompt,
                chunk.max_tokens,
                self._loop.time(),
                self.scheduler.block_size if self._stage.prefix_caching else None,
                chunk.turn.session,
                chunk.features,
                chunk.end,
                self.scheduler.short_keys,
            )
        )
        self._extending = False
        self.longest_queue = max(self.longest_queue, len(request.coming))

    def outgrown(self, table: RequestTable, request: SessionRequest) -> bool:
        """End a session whose context is full, or the engine with all sessions."""
        if request.closed:
            return False
        if self.on_max_len is None:
            raise UserError(
                f"session {request.session} reaches max_model_len {self.max_model_len} in frame {request.turn}; "
                "set on_max_len to crash_all or finish_one, or take shorter sessions."
            )
        self.max_len_hits += 1
        self.recorder.event(self._loop.time(), "max_len", request.session, request.turn)
        self.crashed = self.on_max_len == "crash_all"
        for lost in list(table.requests.values()) if self.crashed else [request]:
            assert isinstance(lost, SessionRequest)
            lost.closed = True
            end(table, lost)
            self.failed(lost, "its context is full" if lost is request else "the engine has crashed")
        return True

    def _joined(self, request_id: str, position: int) -> None:
        """Note that a chunk has become part of the session's context, from `position` on."""
        request = self.engine.requests[request_id]
        assert isinstance(request, SessionRequest)
        chunk = request.coming.popleft()
        request.answered = None if self._extending else request.turn
        request.turn, request.started = chunk.turn.turn, False
        request.work.chunk_starts.extend(position + at for at in chunk.audio_at)
        if position + len(chunk.prompt) + chunk.max_tokens > self.max_model_len:
            self.engine.enqueue(Outgrown(self, request))


def end(table: RequestTable, request: SessionRequest) -> bool:
    """Take a session out; False if it is not here any more."""
    if table.requests.pop(request.id, None) is None:
        return False
    table.scheduler.abort([request.id])
    return True


@dataclass(slots=True)
class Append:
    """A session's new chunk."""

    engine: SessionEngine
    request: SessionRequest
    chunk: Chunk

    def apply(self, table: RequestTable, sampled: Sequence[Row]) -> bool:
        if not self.request.closed:
            self.engine.extend(table, self.request, self.chunk)
        return False


@dataclass(slots=True)
class Close:
    """The end of a session."""

    request: SessionRequest

    def apply(self, table: RequestTable, sampled: Sequence[Row]) -> bool:
        return end(table, self.request)


@dataclass(slots=True)
class Outgrown:
    """A session whose context is full."""

    engine: SessionEngine
    request: SessionRequest

    def apply(self, table: RequestTable, sampled: Sequence[Row]) -> bool:
        return self.engine.outgrown(table, self.request)


class SessionOutput:
    """Counts sessions' tokens; frames have no event for each token, as a tick collects them."""

    def __init__(
        self, replica: Replica, recorder: Recorder, answers: Answers | None, listeners: CallListeners | None
    ) -> None:
        self.steps = CallStepLog(replica, recorder)
        self.answered: Callable[[], None]
        self._scheduler = replica.scheduler
        self._answers = answers
        self._listeners = listeners

    def deliver(
        self, produced: Iterable[Produced | BatchTokens], requests: dict[str, StageRequest], now: float
    ) -> None:
        any_token = False
        for product in produced:
            assert not isinstance(product, BatchTokens), "sessions are in no decode batch"
            request_id, token_ids, _ = product
            request: SessionRequest = requests[request_id]  # type: ignore[assignment]
            request.produced += len(token_ids)
            request.output += token_ids
            if self._answers is not None:
                answered = request.turn if request.answered is None else request.answered
                self._answers.append((request.session, answered, token_ids))
            request.answered = None
            any_token = True
        if any_token:
            self.answered()

    def parked(self, requests: Mapping[str, StageRequest]) -> frozenset[str]:
        return frozenset()

    def counters(self) -> list[Counter[str]]:
        return [self._scheduler.counters]

    def view(self, request: StageRequest, now: float) -> RequestView:
        assert self._listeners is not None, "a policy needs to know who listens"
        return self._listeners.view(request, now)
