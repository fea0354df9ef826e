"""The text of replies: a checkpoint's own, or made-up syllables where a model is modelled or has random weights."""

from pathlib import Path
from typing import Any, Protocol

SYLLABLES = (
    "ba",
    "de",
    "fi",
    "go",
    "lu",
    "ma",
    "ne",
    "po",
    "ri",
    "sa",
    "ti",
    "vo",
    "ka",
    "mi",
    "lo",
    "ze",
    "nu",
)


class Words(Protocol):
    """Turns tokens into text. ``kind``: what clients are told: "syllables" or "tokenizer"."""

    kind: str

    def text(self, session: int, ids: list[int], begin: int, end: int) -> str:
        """Of the tokens ``begin`` up to ``end`` of a reply; ``ids``: all there are, where they mean anything."""
        ...


class Syllables:
    """One for each token, three a word, the same for the same session and place."""

    kind = "syllables"

    def text(self, session: int, ids: list[int], begin: int, end: int) -> str:
        del ids
        return "".join(
            (" " if at % 3 == 0 and at else "") + SYLLABLES[(7 * at + 5 * session + at * at) % len(SYLLABLES)]
            for at in range(begin, end)
        )


class Tokenizer:
    """The tokenizer of a checkpoint's folder."""

    kind = "tokenizer"

    def __init__(self, folder: str) -> None:
        from tokenizers import Tokenizer as Read  # comes with vLLM, and only a real device has a checkpoint

        self._tokenizer: Any = Read.from_file(str(Path(folder) / "tokenizer.json"))

    def text(self, session: int, ids: list[int], begin: int, end: int) -> str:
        """What the tokens add to the text before them; characters of several tokens come with the last of them."""
        del session
        since = max(0, begin - 8)  # no character has more tokens, and a word is told from its neighbours
        before = self._decode(ids[since:begin])
        return self._decode(ids[since:end]).removeprefix(before)

    def _decode(self, ids: list[int]) -> str:
        return self._tokenizer.decode(ids).rstrip("\ufffd")


def words_of(checkpoint: str | None) -> Words:
    """Of a checkpoint that has a tokenizer: its own."""
    if checkpoint is not None and (Path(checkpoint) / "tokenizer.json").exists():
        return Tokenizer(checkpoint)
    return Syllables()
