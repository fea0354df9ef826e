"""The listeners of decode batches: one call reports a step's tokens to all listeners of a class."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from engines.core.fast_path.decode_batch import BatchTokens, DecodeBatch
from engines.core.request import StageRequest


@dataclass(slots=True)
class ListenerGroup:
    """The listeners of a decode batch, in its order. `kept`: data that their class keeps for all of them."""

    listeners: Sequence[Any]
    kept: Any = None


TellGroup = Callable[[ListenerGroup, BatchTokens], None]
"""Reports one text token to each listener of a class. A class offers it as its attribute `texts`."""


class _Listeners(NamedTuple):
    """The replies and listeners of a decode batch.

    `tell_group`: None if the listeners have several classes, their class has no `texts`, or a reply was cancelled.
    `cancelled`: the count of cancelled replies when this was made.
    """

    replies: Sequence[Any]
    group: ListenerGroup
    tell_group: TellGroup | None
    cancelled: int


class Egress(Protocol):
    """Reports tokens to single listeners (`engines.turns.gateway.Gateway`)."""

    def text(self, reply: Any, tokens: int) -> None: ...


class BatchListeners:
    """Passes a decode batch's tokens on to the listeners of its replies. Each request has a `reply`
    (`engines.turns.reply`).

    `hooks`: components that follow each token; none may be in a decode batch while there are any. `pass_on(request,
    deliver, tokens)`: calls `deliver(tokens)` when the message has left the replica of `request`.
    """

    def __init__(
        self,
        hooks: Collection[Any],
        pass_on: Callable[[Any, Callable[[BatchTokens], None], BatchTokens], None],
        egress: Egress,
    ) -> None:
        self._hooks = hooks
        self._pass_on = pass_on
        self._egress = egress
        self._cancelled = 0

    def accepts(self, request: StageRequest) -> bool:
        """Return True if the request's tokens, from the second on, may come by `on_batch_tokens`."""
        return not self._hooks

    def on_batch_tokens(self, tokens: BatchTokens) -> None:
        """Take the tokens of a step that ends now."""
        self._pass_on(tokens.batch.requests[0], self._deliver, tokens)

    def count(self, request: StageRequest, tokens: int) -> None:
        """Count tokens of one request that came by `on_batch_tokens`."""
        reply: Any = request.reply  # type: ignore[attr-defined]
        reply.progress.text_tokens += tokens

    def reply_cancelled(self) -> None:
        """Count a cancelled reply that may have tokens on their way."""
        self._cancelled += 1

    def _deliver(self, tokens: BatchTokens) -> None:
        batch = tokens.batch
        listeners: _Listeners | None = batch.listeners
        if listeners is None or listeners.cancelled != self._cancelled:
            listeners = batch.listeners = self._listeners_of(batch)
        if listeners.tell_group is None:
            for reply in listeners.replies[tokens.begin : tokens.end]:
                self._egress.text(reply, 1)
        else:
            listeners.tell_group(listeners.group, tokens)

    def _listeners_of(self, batch: DecodeBatch) -> _Listeners:
        requests: Sequence[Any] = batch.requests
        replies = [request.reply for request in requests]
        listeners = [reply.listener for reply in replies]
        classes = set(map(type, listeners))
        tell_group = None
        if len(classes) == 1 and not any([reply.cancelled for reply in replies]):
            tell_group = getattr(classes.pop(), "texts", None)
        return _Listeners(replies, ListenerGroup(listeners), tell_group, self._cancelled)
