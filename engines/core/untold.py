"""Tokens that nobody is told of one by one when they come, as they are passed on several at a time."""

from collections.abc import Mapping, Sequence

from engines.core.output import Output
from engines.core.request import StageRequest
from engines.core.together import Chorus


class UntoldTokens:
    """Those of one replica's requests on a modelled device; see `vllm_adapter.lazy_decode.Untold`."""

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
        first, produced = request.made_up(vocab), count * request.worth
        made = list(range(first, first + produced, request.worth))
        if first + produced > vocab:
            made = [each % vocab for each in made]
        request.produced += produced
        request.output += made
        if together:
            self.output.caught_up(request, produced)
        return made

    def next_id(self, request_id: str) -> int:
        return self.requests[request_id].made_up(self.vocab)
