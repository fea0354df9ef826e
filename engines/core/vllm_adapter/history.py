"""Each session's past tokens, said and heard, as vLLM's block hashes: hashed once, not once a turn."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import get_hash_fn_by_name
from vllm.v1.core import kv_cache_utils
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, hash_block_tokens, init_none_hash
from vllm.v1.request import Request

MASK = 2**64 - 1
from_bytes = int.from_bytes


@cache
def hash_function(short_keys: bool = False) -> Callable[[Any], bytes]:
    """Return the function that makes a block's key of (key of the block before, token ids, other content).

    vLLM's own is SHA-256 of the pickled tuple. `short_keys`: 8 bytes of Python's hash of the integers, five times as
    fast, for blocks of tokens alone. Two of a million different blocks have the same key once in a million replays. No
    key may leave the process.
    """
    sha256 = get_hash_fn_by_name("sha256")
    init_none_hash(sha256)
    if not short_keys:
        return sha256

    def short_key(block: tuple[bytes, tuple[int, ...], Any]) -> bytes:
        before, tokens, other = block
        if other is not None:
            return sha256(block)
        return _key_after(from_bytes(before, "little"), tokens).to_bytes(8, "little")

    return short_key


def _key_after(key: int, tokens: tuple[int, ...]) -> int:
    # A hash of integers: the hash of bytes differs between processes.
    return hash((key, tokens)) & MASK


@cache
def block_hasher(block_size: int, short_keys: bool = False) -> Callable[[Request], Any]:
    return get_request_block_hasher(block_size, hash_function(short_keys))


@dataclass(slots=True)
class History:
    """Tokens of one session, the sounds among them, and a hash for each full block of them."""

    tokens: list[int]
    features: Sequence[Any]
    hashes: list[Any]


class Histories:
    """The known history of each session of one replica. `short_keys`: see `hash_function`."""

    def __init__(self, block_size: int, short_keys: bool = False) -> None:
        self.block_size = block_size
        self.short_keys = short_keys
        self._histories: dict[int, History] = {}

    def get(self, session: int) -> History | None:
        return self._histories.get(session)

    def set(self, session: int, tokens: list[int], features: Sequence[Any] = ()) -> History:
        """Set the session's history to `tokens`. Its unchanged first blocks are not hashed again."""
        before = self._histories.get(session)
        hashes: list[Any] = []
        if before is not None and _begins_with(tokens, features, before):
            hashes = list(before.hashes)
        self.extend(hashes, tokens, features)
        history = self._histories[session] = History(tokens, features, hashes)
        return history

    def extend(self, hashes: list[Any], tokens: list[int], features: Sequence[Any] = ()) -> None:
        """Extend `hashes`, of the first blocks of `tokens`, with the hashes of the other full blocks."""
        size = self.block_size
        if len(tokens) // size <= len(hashes):
            return
        hash_fn = hash_function(self.short_keys)
        if not features and self.short_keys:
            key, ids = from_bytes(hashes[-1] if hashes else kv_cache_utils.NONE_HASH, "little"), tuple(tokens)
            for end in range((len(hashes) + 1) * size, len(ids) + 1, size):
                key = _key_after(key, ids[end - size : end])
                hashes.append(key.to_bytes(8, "little"))
        elif not features:  # vLLM's hasher looks at each block for sounds in it
            before, ids = hashes[-1] if hashes else None, tuple(tokens)
            for end in range((len(hashes) + 1) * size, len(ids) + 1, size):
                before = hash_block_tokens(hash_fn, before, ids[end - size : end])
                hashes.append(before)
        else:
            scratch = Request("history", tokens, _NOTHING, None, arrival_time=0.0, mm_features=list(features))
            scratch.block_hashes = hashes
            hashes.extend(block_hasher(size, self.short_keys)(scratch))

    def forget(self, session: int) -> None:
        self._histories.pop(session, None)


_NOTHING = SamplingParams(max_tokens=1)


def _begins_with(tokens: list[int], features: Sequence[Any], before: History) -> bool:
    sounds = zip(features, before.features, strict=False)
    return (
        len(features) >= len(before.features)
        and all(new is old for new, old in sounds)
        and tokens[: len(before.tokens)] == before.tokens
    )
