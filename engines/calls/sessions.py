"""One replica of a stage that serves interaction sessions: a session is one long request, which its audio extends.

Built on vLLM's resumable requests (Metronome section 2, specification 2.1): chunks wait in the scheduler until what
came before them has been answered, and a session that has nothing to do keeps its KV.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from engines.core import vllm_adapter as vllm
from engines.core.device import Device
from engines.core.engine import StageEngine
from engines.core.recorder import Recorder
from engines.core.request import StageRequest
from engines.speaking.monitor import Monitor
from workloads.errors import UserError
from workloads.trace import Turn

OnMaxLen = Literal["crash_all", "finish_one"]
"""What happens when a session reaches max_model_len: the engine dies with all of them, or that one ends."""

ALLOC_FAILS = ("alloc_fail_waiting", "alloc_fail_running")
"""Of the scheduler's counters, in the order of the values of an `alloc_fail` event."""


class Chunk(NamedTuple):
    """What a Step feeds of one frame: `prompt` token ids, answered with `max_tokens`, or up to the token `end`.

    `turn`: the frame. `audio_at`: places in the prompt at each of which a frame's worth of audio begins.
    `features`: these sounds, where the model hears them.
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

    `reply.turn` is the frame that it answers; `produced` and `output` count on over all frames. `answered`: the
    frame whose last tokens have yet to be delivered, when the next one has become part of the context meanwhile.
    """

    coming: deque[Chunk] = field(default_factory=deque)
    closed: bool = False
    answered: Turn | None = None


class SessionEngine(StageEngine):
    """A replica whose requests are sessions.

    `answered` is called after each step with tokens, `failed(request, reason)` when the engine ends a session.
    `max_model_len`: tokens that a session's context may have, and `on_max_len`, what happens beyond: UserError from
    `serve` where nothing is said. `crashed`: it serves nobody any more. `longest_queue`: most chunks that one
    session had waiting to become part of its context. `said`: takes (session, frame, token ids) of all that is said.
    """

    def __init__(
        self,
        stage: str,
        replica: int,
        scheduler: vllm.StageScheduler,
        device: Device,
        recorder: Recorder,
        monitor: Monitor,
        prefix_caching: bool,
        max_model_len: int,
        on_max_len: OnMaxLen | None,
        said: list[tuple[int, int, list[int]]] | None = None,
    ) -> None:
        super().__init__(
            stage,
            replica,
            scheduler,
            device,
            _nothing,
            _nothing,
            recorder,
            monitor,
            prefix_caching=prefix_caching,
        )
        scheduler.on_chunk = self._joined
        self.max_model_len = max_model_len
        self.on_max_len = on_max_len
        self.answered: Callable[[], None]
        self.failed: Callable[[SessionRequest, str], None]
        self.crashed = False
        self.max_len_hits = 0
        self.longest_queue = 0
        self._said = said
        self._extending = False
        self._too_long: list[SessionRequest] = []
        self._alloc_fails = (0, 0)
        self._recorded: tuple[int, ...] = ()

    def append(self, request: SessionRequest, chunk: Chunk) -> None:
        """Feed the session's next chunk; the first one opens it. Chunks for a closed session are dropped."""
        turn = chunk.turn
        self.recorder.event(self._loop.time(), "arrive", turn.session, turn.turn, self.stage)
        self._inbox.append(("append", (request, chunk)))
        self.wake()

    def close(self, request: SessionRequest) -> None:
        """End the session; its KV is free when the step under way has ended."""
        request.closed = True
        self._inbox.append(("close", request))
        self.wake()

    def counters(self) -> list[Counter[str]]:
        return [*super().counters(), self.scheduler.counters]

    def _take_inbox(self, sampled: "Sequence[vllm.Row]") -> bool:
        """Apply what arrived; True when a session was ended."""
        inbox, self._inbox = self._inbox, []
        ended = False
        for verb, item in inbox:
            if verb == "append":
                self._extend(*item)
            else:
                ended |= self._end(item)
        too_long, self._too_long = self._too_long, []
        for request in too_long:
            ended |= self._outgrown(request)
        return ended

    def _extend(self, request: SessionRequest, chunk: Chunk) -> None:
        if request.closed:
            return
        self.requests[request.id] = request
        request.coming.append(chunk)
        self._extending = True
        self.scheduler.add_request(
            vllm.make_chunk(
                request.id,
                chunk.prompt,
                chunk.max_tokens,
                self._loop.time(),
                self.scheduler.block_size if self.prefix_caching else None,
                chunk.turn.session,
                chunk.features,
                chunk.end,
            )
        )
        self._extending = False
        self.longest_queue = max(self.longest_queue, len(request.coming))

    def _joined(self, request_id: str, position: int) -> None:
        """A chunk has become part of the session's context, from `position` on."""
        request: SessionRequest = self.requests[request_id]  # type: ignore[assignment]
        chunk = request.coming.popleft()
        request.answered = None if self._extending else request.reply.turn
        request.reply.turn, request.started = chunk.turn, False
        request.chunk_starts.extend(position + at for at in chunk.audio_at)
        if position + len(chunk.prompt) + chunk.max_tokens > self.max_model_len:
            self._too_long.append(request)

    def _outgrown(self, request: SessionRequest) -> bool:
        if request.closed:
            return False
        turn = request.reply.turn
        if self.on_max_len is None:
            raise UserError(
                f"session {turn.session} reaches max_model_len {self.max_model_len} in frame {turn.turn}; "
                "set on_max_len to crash_all or finish_one, or take shorter sessions."
            )
        self.max_len_hits += 1
        self.recorder.event(self._loop.time(), "max_len", turn.session, turn.turn)
        self.crashed = self.on_max_len == "crash_all"
        for lost in list(self.requests.values()) if self.crashed else [request]:
            assert isinstance(lost, SessionRequest)
            lost.closed = True
            self._end(lost)
            self.failed(lost, "its context is full" if lost is request else "the engine has crashed")
        return True

    def _end(self, request: SessionRequest) -> bool:
        if self.requests.pop(request.id, None) is None:
            return False
        self.scheduler.abort([request.id])
        return True

    def _can_run(self, plan: object) -> bool:
        return self.scheduler.get_num_unfinished_requests() > 0

    def _deliver(self, produced: Iterable[tuple[str, list[int], bool]], now: float) -> None:
        """Count tokens; frames have no event for each, as a Step collects them."""
        requests, any_token = self.requests, False
        for request_id, token_ids, _ in produced:
            request: SessionRequest = requests[request_id]  # type: ignore[assignment]
            request.produced += len(token_ids)
            request.output += token_ids
            if self._said is not None:
                turn = request.answered or request.reply.turn
                self._said.append((turn.session, turn.turn, token_ids))
            request.answered = None
            any_token = True
        if any_token:
            self.answered()

    def _record_step(
        self, start_s: float, end_s: float, rows: "list[vllm.Row]", held: int, preempted: int
    ) -> None:
        """As for turns, but a round in which nothing ran and nothing changed leaves no row."""
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
        if rows or preempted or state != self._recorded:
            self._recorded = state
            super()._record_step(start_s, end_s, rows, held, preempted)


def _nothing(*_: object) -> None:
    """Sessions have no request that ends and no token that is passed on by itself."""
