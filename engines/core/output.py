"""Where the output of a stage replica goes, and what else its consumer knows of a request."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from engines.core.policy import RequestView
from engines.core.recorder import Recorder, StepLog
from engines.core.replica import Replica
from engines.core.request import StageRequest
from engines.core.together import Chorus, Together, Told
from engines.core.view import plain_view

Produced = tuple[str, list[int], bool]
"""Request id, its new token ids, and whether it has finished."""


class Output(Protocol):
    """Takes what a replica's steps produce, at their end."""

    @property
    def steps(self) -> StepLog:
        """Writes the steps themselves down."""
        ...

    def deliver(
        self, produced: Iterable[Produced | Told], requests: dict[str, StageRequest], now: float
    ) -> None:
        """Pass on the tokens of a step that ended at `now`; who has finished leaves `requests`."""
        ...

    def untold(self, request: StageRequest) -> int:
        """How many of a running request's next tokens nobody would be told of when they come."""
        ...

    def together(self, request: StageRequest) -> bool:
        """Whether its next tokens can be delivered with others' as `Told`."""
        ...

    def caught_up(self, request: StageRequest, tokens: int) -> None:
        """So many of its production tokens, delivered as `Told`, are in its own counts now."""
        ...

    def parked(self, requests: Mapping[str, StageRequest]) -> frozenset[str]:
        """Running requests whose next input has not come: they keep KV and slot and wait."""
        ...

    def counters(self) -> list[Counter[str]]:
        """Return the counters of the output, for the record."""
        ...

    def view(self, request: StageRequest, now: float) -> RequestView:
        """The request as policies see it, but for what vLLM's scheduler knows of it."""
        ...


Request = TypeVar("Request", bound=StageRequest)
NOBODY: frozenset[str] = frozenset()


class StageOutput:
    """Output of requests that end by themselves: `on_token(request, tokens)` at each step, then `on_finish(request)`.

    `on_prefilled(request)`: it has its first token at a prefill replica, and another replica is to go on with it.
    `stream_interval`: production tokens that are passed on together, but for a request's first and its last.
    `ready` says whether a running request has the input that its next token needs; None: it always has.
    `listeners` takes the tokens of several requests at once; None: `on_token` takes each.
    """

    def __init__(
        self,
        replica: Replica,
        recorder: Recorder,
        on_token: Callable[[Request, int], None],
        on_finish: Callable[[Request], None],
        ready: Callable[[Request], bool] | None = None,
        view: Callable[..., RequestView] | None = None,
        on_prefilled: Callable[[Request], None] | None = None,
        stream_interval: int = 1,
        listeners: Together | None = None,
    ) -> None:
        self.stage = replica.stage.name
        self.recorder = recorder
        self.steps = StepLog(replica, recorder)
        self.on_token: Callable = on_token
        self.on_finish: Callable = on_finish
        self.on_prefilled: Callable | None = on_prefilled
        self.ready: Callable | None = ready
        self.view: Callable[..., Any] = plain_view if view is None else view
        self.stream_interval = stream_interval
        self.listeners = listeners

    def deliver(
        self, produced: Iterable[Produced | Told], requests: dict[str, StageRequest], now: float
    ) -> None:
        event, on_token, stage = self.recorder.event, self.on_token, self.stage
        interval = self.stream_interval
        for each in produced:
            if isinstance(each, Told):
                assert self.listeners is not None
                self.recorder.event_of_each(now, "token", each.who, stage, 1)
                self.listeners.told(each)
                continue
            request_id, token_ids, finished = each
            request = requests[request_id]
            request.produced += len(token_ids) * request.tokens_per_output
            request.output += token_ids
            if request.speculative:
                if finished:
                    del requests[request_id]
                continue
            request.delivered(now)
            tokens = request.produced - request.streamed
            if tokens >= interval or finished or not request.streamed:
                request.streamed = request.produced
                event(now, "token", request.session, request.turn, stage, tokens)
                on_token(request, tokens)
            if finished:
                del requests[request_id]
                if self.on_prefilled is not None and len(request.output) < request.max_tokens:
                    self.on_prefilled(request)
                    continue
                event(now, "finish", request.session, request.turn, stage, request.produced)
                self.on_finish(request)

    def untold(self, request: StageRequest) -> int:
        if not request.streamed or request.speculative or request.slo.tbt_deadline_s is not None:
            return 0
        left = self.stream_interval - (request.produced - request.streamed)
        return max(0, -(-left // request.tokens_per_output) - 1)

    def together(self, request: StageRequest) -> bool:
        if self.listeners is None or self.stream_interval != 1 or not request.streamed or request.speculative:
            return False
        return (
            request.tokens_per_output == 1
            and request.slo.tbt_deadline_s is None
            and self.listeners.takes(request)
        )

    def caught_up(self, request: StageRequest, tokens: int) -> None:
        assert self.listeners is not None
        request.streamed = request.produced
        request.due_s = None
        self.listeners.caught_up(request, tokens)

    def parked(self, requests: Mapping[str, StageRequest]) -> frozenset[str]:
        if self.ready is None:
            return NOBODY
        ready = self.ready
        parked = [id for id, request in requests.items() if request.started and not ready(request)]
        return frozenset(parked) if parked else NOBODY

    def counters(self) -> list[Counter[str]]:
        return []


class UntoldTokens:
    """Tokens of one replica's requests on a modelled device that nobody is told of one by one when they come; see
    `vllm_adapter.lazy_decode.Untold`."""

    def __init__(self, requests: Mapping[str, StageRequest], output: Output, vocab: int) -> None:
        self.requests = requests
        self.output = output
        self.vocab = vocab

    def ahead(self, request_id: str) -> int:
        return self.output.untold(self.requests[request_id])

    def together(self, request_id: str) -> bool:
        return self.output.together(self.requests[request_id])

    def chorus(self, request_ids: Sequence[str]) -> Chorus:
        requests = self.requests
        return Chorus([requests[request_id] for request_id in request_ids])

    def make(self, request_id: str, count: int, together: bool) -> list[int]:
        request, vocab = self.requests[request_id], self.vocab
        first, produced = request.fake_token_id(vocab), count * request.tokens_per_output
        made = list(range(first, first + produced, request.tokens_per_output))
        if first + produced > vocab:
            made = [each % vocab for each in made]
        request.produced += produced
        request.output += made
        if together:
            self.output.caught_up(request, produced)
        return made

    def next_id(self, request_id: str) -> int:
        return self.requests[request_id].fake_token_id(self.vocab)
