"""Token ids as a function of content: who said what and when decides them, so equal content shares a prefix cache."""

from zlib import crc32


def first_token_id(session: int, turn: int, speaker: str, vocab: int) -> int:
    """Id of the first token of what ``speaker`` says in this turn; the following ones count up from it."""
    return crc32(f"{session}/{turn}/{speaker}".encode()) % vocab


def token_ids(session: int, turn: int, speaker: str, count: int, vocab: int) -> list[int]:
    """The first ``count`` token ids of what ``speaker`` says in this turn, below ``vocab``."""
    first = first_token_id(session, turn, speaker, vocab)
    if first + count <= vocab:
        return list(range(first, first + count))
    return [(first + i) % vocab for i in range(count)]
