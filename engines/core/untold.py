"""Tokens that nobody is told of when they come, as they are passed on several at a time."""

from collections.abc import Mapping

from rehearsal.engines.core.output import Output
from rehearsal.engines.core.request import StageRequest


class UntoldTokens:
    """Those of one replica's requests on a modelled device; see `vllm_adapter.lazy_decode.Untold`."""

    def __init__(self, requests: Mapping[str, StageRequest], output: Output, vocab: int) -> None:
        self.requests = requests
        self.output = output
        self.vocab = vocab

    def ahead(self, request_id: str) -> int:
        return self.output.untold(self.requests[request_id])

    def make(self, request_id: str, count: int) -> list[int]:
        request, vocab = self.requests[request_id], self.vocab
        first, produced = request.made_up(vocab), count * request.worth
        made = [each % vocab for each in range(first, first + produced, request.worth)]
        request.produced += produced
        request.output += made
        return made

    def next_id(self, request_id: str) -> int:
        return self.requests[request_id].made_up(self.vocab)
