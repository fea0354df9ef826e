"""vLLM's requests as stages make them: greedy, of a fixed number of tokens, with the parameters of their KV."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from vllm.sampling_params import SamplingParams
from vllm.v1.request import Request

from engines.core.vllm_adapter.hand_over import TO_SEND, to_fetch
from engines.core.vllm_adapter.history import block_hasher

NOT_STORED = {"kv_transfer_params": {"max_offload_tokens": 0}}
"""Arguments of a request that vLLM's offload connector leaves alone."""


def make_request(
    request_id: str,
    prompt: list[int],
    max_tokens: int,
    arrival_s: float,
    hash_blocks: int | None = None,
    session: int = 0,
    features: Sequence[Any] = (),
    hashes: Sequence[Any] = (),
    end: int | None = None,
    priority: int = 0,
    stored: bool = True,
    sent: bool = False,
    fetched: bool = False,
    short_keys: bool = False,
) -> Request:
    """Return a request that produces exactly `max_tokens` tokens, greedily; fewer when the token `end` is among them.

    `hash_blocks`: tokens per block with which its blocks enter the prefix cache; None: they do not. `features`: the
    sound in the prompt (`audio_input.EncodedAudio.at`). `hashes`: of its first blocks as far as they are known.
    `stored`: its KV may go to the host. `sent`: it stays until another replica has it. `fetched`: it comes from one.
    `short_keys`: see `history.hash_function`.
    """
    # The connector writes down in its parameters that a request has been fetched.
    parameters = _greedy.__wrapped__ if fetched else _greedy
    request = Request(
        request_id,
        prompt,
        parameters(max_tokens, end, sent, fetched, stored),
        None,
        arrival_time=arrival_s,
        mm_features=list(features) or None,
        session_id=str(session),
        priority=priority,
    )
    if hash_blocks is not None:
        request.block_hashes.extend(hashes)
        request._block_hasher = block_hasher(hash_blocks, short_keys)
        request.update_block_hashes()
    return request


@lru_cache(1024)
def _greedy(max_tokens: int, end: int | None, sent: bool, fetched: bool, stored: bool) -> SamplingParams:
    """Return the parameters of such requests: one object for all of them, as vLLM only reads it."""
    return SamplingParams(
        max_tokens=max_tokens,
        ignore_eos=True,
        stop_token_ids=None if end is None else [end],
        detokenize=False,
        temperature=0.0,
        extra_args=TO_SEND if sent else to_fetch() if fetched else None if stored else NOT_STORED,
    )


def make_chunk(
    request_id: str,
    prompt: list[int],
    max_tokens: int,
    arrival_s: float,
    hash_blocks: int | None = None,
    session: int = 0,
    features: Sequence[Any] = (),
    end: int | None = None,
    short_keys: bool = False,
) -> Request:
    """Return one input chunk of an interaction session.

    Exactly `max_tokens` tokens answer it, or fewer if one of them is `end`. `features`: the sound in it, with places
    counted from the chunk's start (`audio_input.EncodedAudio.at`). Given to `add_request`, the first one opens the
    session `request_id`; later ones extend its prompt as soon as the earlier chunks have been answered. The last token
    of an answer never enters the context (vLLM's resumable requests, Metronome specification 2.1). `abort` closes the
    session.
    """
    ids = list(prompt)  # vLLM appends later chunks to the first one's list
    request = make_request(request_id, ids, max_tokens, arrival_s, session=session, features=features, end=end)
    request.resumable = True
    if hash_blocks is not None:
        # `add_request` hashes if it is the session's first.
        request._block_hasher = block_hasher(hash_blocks, short_keys)
    return request
