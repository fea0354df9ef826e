"""Token ids as a function of content: who said what and when decides them, so equal content shares a prefix cache."""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING
from zlib import crc32

from engines.models import Model

if TYPE_CHECKING:
    from workloads.trace import Turn


def first_token_id(session: int, turn: int, speaker: str, vocab: int) -> int:
    """Id of the first token of what `speaker` says in this turn; the following ones count up from it."""
    return crc32(f"{session}/{turn}/{speaker}".encode()) % vocab


def token_ids(session: int, turn: int, speaker: str, count: int, vocab: int) -> list[int]:
    """The first `count` token ids of what `speaker` says in this turn, below `vocab`."""
    return _counted(first_token_id(session, turn, speaker, vocab), count, vocab)


def text_ids(number: int, count: int, vocab: int) -> list[int]:
    """The first `count` token ids of the text of that number, which whoever names it shares, below `vocab`."""
    return _counted(crc32(f"text/{number}".encode()) % vocab, count, vocab)


def audio_ids(turn: Turn, count: int, vocab: int) -> list[int]:
    """`count` token ids of a frame's audio, below `vocab`: those of its `content`, or of nobody else.

    All 32 bits of the content's hash tell: two sessions that began alike by chance would share their first block.
    """
    strides, first = divmod(_heard(turn), vocab)
    stride = 1 + strides % (vocab - 1)
    return [(first + i * stride) % vocab for i in range(count)]


def first_answer_id(turn: Turn, vocab: int) -> int:
    """Id of the first token that a modelled device says in a session which begins with `turn`.

    Sessions that hear the same from the start say the same.
    """
    return crc32(f"{_heard(turn)}/answers".encode()) % vocab


def template_ids(count: int, vocab: int) -> list[int]:
    """Token ids of the text around each frame, the same for all sessions."""
    return _counted(crc32(b"template") % vocab, count, vocab)


def frame_tokens(model: Model, audio_s: float) -> int:
    """Tokens that `audio_s` seconds of streamed audio become, those around the sound included."""
    return math.ceil(audio_s * model.input_tokens_per_s - 1e-9) + model.chunk_extra_tokens


def density(turn: Turn) -> float:
    """How many tokens a frame's input becomes, over what is nominal for so much audio: 1 unless the trace says more."""
    from workloads.distributions.speech import (
        AUDIO_TOKENS_PER_S,  # which brings numpy, and servers are configured without
    )

    assert turn.audio_s is not None, "a frame is audio"
    return turn.input_tokens / math.ceil(turn.audio_s * AUDIO_TOKENS_PER_S)


def _heard(turn: Turn) -> int:
    said = f"{turn.session}/{turn.turn}/user" if turn.content is None else f"heard/{turn.content}"
    return crc32(said.encode())


def _counted(first: int, count: int, vocab: int) -> list[int]:
    ids = _ids(vocab)
    rounds, left = divmod(first + count, vocab)
    if not rounds:
        return ids[first:left]
    return ids[first:] + ids * (rounds - 1) + ids[:left]


@cache
def _ids(vocab: int) -> list[int]:
    """All of them, made once: lists of the same numbers share them."""
    return list(range(vocab))
