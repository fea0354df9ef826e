"""Unstreamed tokens: tokens of a modelled device that are not delivered one by one."""

from collections.abc import Mapping, Sequence

from engines.core.fast_path.decode_batch import DecodeBatch
from engines.core.output import StageOutput
from engines.core.request import StageRequest


class UnstreamedTokens:
    """Finds the tokens of a replica's requests that can be delivered later, and makes them then.

    Their ids count up from the first one, so the tokens of several steps can be made at once. `vocab`: number of token
    ids.
    """

    def __init__(self, requests: Mapping[str, StageRequest], output: StageOutput, vocab: int) -> None:
        self._requests = requests
        self._output = output
        self._vocab = vocab

    def ahead(self, request_id: str) -> int:
        """Return the number of the request's next tokens that only fill its next message
        (`StageOutput.stream_interval`)."""
        request = self._requests[request_id]
        if not self._has_no_deadline(request):
            return 0
        missing = self._output.stream_interval - (request.produced - request.streamed)
        return max(0, -(-missing // request.tokens_per_output) - 1)

    def may_batch(self, request_id: str) -> bool:
        """Return True if the request can be in a decode batch: one token is one message, and the listener takes it
        so."""
        request, output = self._requests[request_id], self._output
        if output.batch_listeners is None or output.stream_interval != 1 or request.tokens_per_output != 1:
            return False
        return self._has_no_deadline(request) and output.batch_listeners.accepts(request)

    def batch(self, request_ids: Sequence[str]) -> DecodeBatch:
        """Return the decode batch of these requests, in their order."""
        return DecodeBatch([self._requests[request_id] for request_id in request_ids])

    def make(self, request_id: str, steps: int, batched: bool) -> list[int]:
        """Note the tokens of the request's last `steps` steps; returns their ids. `batched`: the decode batch has
        reported them to its listener."""
        request, vocab = self._requests[request_id], self._vocab
        first, produced = request.fake_token_id(vocab), steps * request.tokens_per_output
        made = list(range(first, first + produced, request.tokens_per_output))
        if first + produced > vocab:
            made = [token_id % vocab for token_id in made]
        request.produced += produced
        request.output += made
        if batched:
            assert self._output.batch_listeners is not None
            request.streamed = request.produced
            request.due_s = None
            self._output.batch_listeners.count(request, produced)
        return made

    def next_id(self, request_id: str) -> int:
        """Return the id of the request's next token."""
        return self._requests[request_id].fake_token_id(self._vocab)

    @staticmethod
    def _has_no_deadline(request: StageRequest) -> bool:
        """Return True if the request's first token is out, and no later one has a deadline."""
        return bool(request.streamed) and not request.speculative and request.slo.tbt_deadline_s is None
