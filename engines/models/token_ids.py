"""Token ids as a function of content: speaker and time decide them, so equal content shares a prefix cache."""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING
from zlib import crc32

from engines.models import Model

if TYPE_CHECKING:
    from workloads.trace import Turn


def first_token_id(session: int, turn: int, speaker: str, vocab: int) -> int:
    """Return the id of the first token of `speaker`'s words in this turn; the following ones count up from it."""
    return crc32(f"{session}/{turn}/{speaker}".encode()) % vocab


def token_ids(session: int, turn: int, speaker: str, count: int, vocab: int) -> list[int]:
    """Return the first `count` token ids of `speaker`'s words in this turn, below `vocab`."""
    return _counted(first_token_id(session, turn, speaker, vocab), count, vocab)


def text_ids(number: int, count: int, vocab: int) -> list[int]:
    """Return the first `count` token ids of the text of that number, below `vocab`; all sessions that name it share
    it."""
    return _counted(crc32(f"text/{number}".encode()) % vocab, count, vocab)


def audio_ids(turn: Turn, count: int, vocab: int) -> list[int]:
    """Return `count` token ids of a frame's audio, below `vocab`: those of its `content`, or ids that no other session
    has.

    All 32 bits of the content's hash count: otherwise two sessions that began alike by chance would share their first
    block.
    """
    strides, first = divmod(_audio_hash(turn), vocab)
    stride = 1 + strides % (vocab - 1)
    return [(first + i * stride) % vocab for i in range(count)]


def first_answer_id(turn: Turn, vocab: int) -> int:
    """Return the id of a modelled device's first token in a session which begins with `turn`.

    Sessions with the same input from the start have the same output.
    """
    return crc32(f"{_audio_hash(turn)}/answers".encode()) % vocab


def template_ids(count: int, vocab: int) -> list[int]:
    """Return token ids of the text around each frame, the same for all sessions."""
    return _counted(crc32(b"template") % vocab, count, vocab)


def frame_tokens(model: Model, audio_s: float) -> int:
    """Return the tokens of `audio_s` seconds of streamed audio, including those around the sound."""
    return math.ceil(audio_s * model.input_tokens_per_s - 1e-9) + model.chunk_extra_tokens


def density(turn: Turn) -> float:
    """Return the factor on the nominal tokens of a frame's input: 1 unless the trace has another."""
    from workloads.distributions.speech import (
        AUDIO_TOKENS_PER_S,  # which brings numpy, and servers are configured without
    )

    assert turn.audio_s is not None, "a frame is audio"
    return turn.input_tokens / math.ceil(turn.audio_s * AUDIO_TOKENS_PER_S)


def _audio_hash(turn: Turn) -> int:
    key = f"{turn.session}/{turn.turn}/user" if turn.content is None else f"heard/{turn.content}"
    return crc32(key.encode())


def _counted(first: int, count: int, vocab: int) -> list[int]:
    ids = _ids(vocab)
    rounds, end = divmod(first + count, vocab)
    if not rounds:
        return ids[first:end]
    return ids[first:] + ids * (rounds - 1) + ids[:end]


@cache
def _ids(vocab: int) -> list[int]:
    """Return all ids, made once: lists of the same numbers share them."""
    return list(range(vocab))
