"""Spoken questions: a folder of recordings with questions.jsonl, which lists the required keywords of each answer.

One object a line: `file`, the recording's name below the folder; `keywords`: an answer states at least one of them;
`kind`: `question` (default), `fresh` (asked late in a call, for the first time) or `recall` (asks for the session's
first question, whose keywords are then its own).
"""

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from workloads.audio.library import Recording, open_recording
from workloads.errors import UserError
from workloads.files.json_file import JsonFile

NAME = "questions.jsonl"
KINDS = ("question", "fresh", "recall")


@dataclass(frozen=True)
class Question:
    """A recording and its keywords; an answer states at least one of them."""

    clip: Recording
    keywords: tuple[str, ...]
    kind: str = "question"


@dataclass(frozen=True)
class Questions:
    """The questions of a folder by kind, in the order of the file; `digest`: 53 bits for the questions and keywords."""

    questions: tuple[Question, ...]
    fresh: tuple[Question, ...]
    recall: tuple[Question, ...]
    digest: int


def read_questions(folder: str | Path) -> Questions:
    """UserError when the folder has no questions.jsonl, or about its first line that is wrong."""
    folder = Path(folder)
    if not os.path.isfile(folder / NAME):
        raise UserError(
            f"{folder} has no {NAME}; write one line for each recording there, such as "
            '{"file": "capital.wav", "keywords": ["Paris"]}.'
        )
    file = JsonFile(folder / NAME)
    names = file.values("file", str, "the name of a recording")
    kinds = [kind or KINDS[0] for kind in file.optional("kind")]
    file.refuse(np.array([kind not in KINDS for kind in kinds]), "kind", f"is none of {', '.join(KINDS)}")
    keywords = file.optional("keywords")
    bad = [kind != "recall" and not _words(given) for kind, given in zip(kinds, keywords, strict=True)]
    file.refuse(np.array(bad), "keywords", "is not a list of words that an answer states one of")
    given = [kind == "recall" and words is not None for kind, words in zip(kinds, keywords, strict=True)]
    file.refuse(np.array(given), "keywords", "must be left out: those of the session's first question are meant")
    questions = [
        Question(open_recording(folder, name), tuple(words or ()), kind)
        for name, words, kind in zip(names, keywords, kinds, strict=True)
    ]
    of_kind = {kind: tuple(question for question in questions if question.kind == kind) for kind in KINDS}
    if not of_kind["question"]:
        raise UserError(f"{folder / NAME} has no question of kind 'question'; add one.")
    content = json.dumps([[each.clip.sha256, each.kind, *each.keywords] for each in questions])
    digest = int.from_bytes(hashlib.blake2b(content.encode(), digest_size=8).digest(), "big") >> 11
    return Questions(of_kind["question"], of_kind["fresh"], of_kind["recall"], digest)


def _words(given: Any) -> bool:
    return (
        isinstance(given, list)
        and bool(given)
        and all(isinstance(word, str) and any(letter.isalnum() for letter in word) for word in given)
    )
