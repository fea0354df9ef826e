"""The text of replies: a checkpoint's own, or made-up syllables if the model is modelled or has random weights."""

from pathlib import Path
from typing import Any, Protocol

SYLLABLES = ("ba", "de", "fi", "go", "lu", "ma", "ne", "po", "ri", "sa", "ti", "vo", "ka", "mi", "lo", "ze", "nu")


CONTEXT = 8
"""[chosen] tokens before the new ones that affect their text: no character has more."""


class Detokenizer(Protocol):
    """Turns tokens into text. `kind`: its name for clients: "syllables" or "tokenizer"."""

    kind: str

    def text(self, session: int, at: int, ids: list[int], new: int) -> str:
        """Return the text of the `new` tokens of a reply from token `at` on. `ids`: theirs, behind up to `CONTEXT`
        others."""
        ...


class SyllableDetokenizer:
    """Makes a syllable per token, three a word, the same for the same session and position."""

    kind = "syllables"

    def text(self, session: int, at: int, ids: list[int], new: int) -> str:
        del ids
        return "".join(
            (" " if position % 3 == 0 and position else "")
            + SYLLABLES[(7 * position + 5 * session + position * position) % len(SYLLABLES)]
            for position in range(at, at + new)
        )


class CheckpointDetokenizer:
    """The tokenizer of a checkpoint's folder."""

    kind = "tokenizer"

    def __init__(self, folder: str) -> None:
        from transformers import AutoTokenizer  # comes with vLLM, and only a real device has a checkpoint

        self._tokenizer: Any = AutoTokenizer.from_pretrained(folder, local_files_only=True)

    def text(self, session: int, at: int, ids: list[int], new: int) -> str:
        """Return the text that the last `new` tokens add. A character of several tokens comes with the last of them."""
        del session, at
        return self._decode(ids).removeprefix(self._decode(ids[: len(ids) - new]))

    def _decode(self, ids: list[int]) -> str:
        return self._tokenizer.decode(ids, skip_special_tokens=True).rstrip("\ufffd")


def detokenizer_of(checkpoint: str | None) -> Detokenizer:
    """Return the tokenizer of a checkpoint that has one, else the syllables."""
    if checkpoint is not None and (Path(checkpoint) / "tokenizer_config.json").exists():
        return CheckpointDetokenizer(checkpoint)
    return SyllableDetokenizer()
