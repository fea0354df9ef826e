"""The consumer of a stage replica's output, and its knowledge of each request."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol, TypeVar

from engines.core.fast_path.batch_listeners import BatchListeners
from engines.core.fast_path.decode_batch import BatchTokens, Produced
from engines.core.policy import FollowingPolicy, RequestView
from engines.core.recorder import Recorder, StepLog
from engines.core.replica import Replica
from engines.core.request import StageRequest
from engines.core.view import plain_view


class Output(Protocol):
    """Takes the products of a replica's steps, at their end."""

    @property
    def steps(self) -> StepLog:
        """Return the log of the steps."""
        ...

    def deliver(
        self, produced: Iterable[Produced | BatchTokens], requests: dict[str, StageRequest], now: float
    ) -> None:
        """Pass on the tokens of a step that ended at `now`; finished requests leave `requests`."""

    def parked(self, requests: Mapping[str, StageRequest]) -> frozenset[str]:
        """Return running requests whose next input has not come: they keep KV and slot and wait."""
        ...

    def counters(self) -> list[Counter[str]]:
        """Return the counters of the output, for the record."""
        ...

    def view(self, request: StageRequest, now: float) -> RequestView:
        """Return the request as policies see it, without the counts of vLLM's scheduler."""
        ...


class Followed:
    """An output that first reports its products to a policy, which excludes decode batches."""

    def __init__(self, output: Output, policy: FollowingPolicy) -> None:
        self._output, self._policy = output, policy

    def __getattr__(self, name: str) -> Any:
        return getattr(self._output, name)

    def deliver(
        self, produced: Iterable[Produced | BatchTokens], requests: dict[str, StageRequest], now: float
    ) -> None:
        produced = list(produced)
        for product in produced:
            assert not isinstance(product, BatchTokens)
            request_id, token_ids, finished = product
            self._policy.produced(request_id, len(token_ids), finished)
        self._output.deliver(produced, requests, now)


Request = TypeVar("Request", bound=StageRequest)


class StageOutput:
    """Output of requests that end by themselves: calls `on_token(request, tokens)` at each step, then
    `on_finish(request)`.

    `on_prefilled(request)`: it has its first token at a prefill replica, and another replica is to continue it.
    `stream_interval`: production tokens that are passed on together, except a request's first and last. `ready` returns
    True if a running request has the input for its next token; None: it always has. `batch_listeners` takes the tokens
    of decode batches; None: `on_token` takes each token.
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
        batch_listeners: BatchListeners | None = None,
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
        self.batch_listeners = batch_listeners

    def deliver(
        self, produced: Iterable[Produced | BatchTokens], requests: dict[str, StageRequest], now: float
    ) -> None:
        event, on_token, stage = self.recorder.event, self.on_token, self.stage
        interval = self.stream_interval
        for product in produced:
            if isinstance(product, BatchTokens):
                assert self.batch_listeners is not None
                self.recorder.event_of_each(now, "token", product.log_keys, stage, 1)
                self.batch_listeners.on_batch_tokens(product)
                continue
            request_id, token_ids, finished = product
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
                assert len(request.output) == request.max_tokens
                event(now, "finish", request.session, request.turn, stage, request.produced)
                self.on_finish(request)

    def parked(self, requests: Mapping[str, StageRequest]) -> frozenset[str]:
        if self.ready is None:
            return frozenset()
        ready = self.ready
        parked = [id for id, request in requests.items() if request.started and not ready(request)]
        return frozenset(parked) if parked else frozenset()

    def counters(self) -> list[Counter[str]]:
        return []
