"""Each session's past tokens, said and heard, as vLLM's block hashes: hashed once, not once a turn."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import get_hash_fn_by_name
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, hash_block_tokens, init_none_hash
from vllm.v1.request import Request


@cache
def hash_function() -> Callable[[Any], bytes]:
    """vLLM's, by which blocks are known."""
    hash_fn = get_hash_fn_by_name("sha256")
    init_none_hash(hash_fn)
    return hash_fn


@cache
def block_hasher(block_size: int) -> Callable[[Request], Any]:
    """vLLM's hasher of a request's full blocks."""
    return get_request_block_hasher(block_size, hash_function())


@dataclass(slots=True)
class History:
    """Tokens of one session, the sounds among them, and a hash for each full block of them."""

    tokens: list[int]
    features: Sequence[Any]
    hashes: list[Any]


class Histories:
    """The known history of each session of one replica."""

    def __init__(self, block_size: int) -> None:
        self.block_size = block_size
        self._known: dict[int, History] = {}

    def get(self, session: int) -> History | None:
        return self._known.get(session)

    def set(self, session: int, tokens: list[int], features: Sequence[Any] = ()) -> History:
        """The session's history is now `tokens`; blocks that it begins with as before are not hashed again."""
        before = self._known.get(session)
        hashes: list[Any] = []
        if before is not None and _begins_with(tokens, features, before):
            hashes = list(before.hashes)
        self.extend(hashes, tokens, features)
        history = self._known[session] = History(tokens, features, hashes)
        return history

    def extend(self, hashes: list[Any], tokens: list[int], features: Sequence[Any] = ()) -> None:
        """Add to `hashes`, those of the first blocks of `tokens`, the ones of the other full blocks."""
        size = self.block_size
        if len(tokens) // size <= len(hashes):
            return
        if not features:  # vLLM's hasher looks at each block for what else is in it
            hash_fn, before, ids = hash_function(), hashes[-1] if hashes else None, tuple(tokens)
            for end in range((len(hashes) + 1) * size, len(ids) + 1, size):
                before = hash_block_tokens(hash_fn, before, ids[end - size : end])
                hashes.append(before)
        else:
            scratch = Request("history", tokens, _NOTHING, None, arrival_time=0.0, mm_features=list(features))
            scratch.block_hashes = hashes
            hashes.extend(block_hasher(size)(scratch))

    def forget(self, session: int) -> None:
        self._known.pop(session, None)


_NOTHING = SamplingParams(max_tokens=1)


def _begins_with(tokens: list[int], features: Sequence[Any], before: History) -> bool:
    sounds = zip(features, before.features, strict=False)
    return (
        len(features) >= len(before.features)
        and all(new is old for new, old in sounds)
        and tokens[: len(before.tokens)] == before.tokens
    )
