"""Lengths of long documents and of the answers to them, in rows as LongBench has those of DuReader and MultiNews.

A row has a `context`, an `input` that is asked of it (empty where a summary is wanted), and `answers`, any of which is
right: the first is taken.
"""

from pathlib import Path
from typing import Any

import numpy as np

from workloads.files.json_file import JsonFile
from workloads.files.sharegpt_file import CJK_PER_TOKEN, tokens_of


def read_longbench(path: Path, notes: list[str], skip_bad: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """(document with question, answer) lengths in Chinese characters, float64, in the order of the file.

    A character of another script counts as the part of a Chinese one that has as many tokens. UserError names file,
    line and field of bad input.
    """
    file = JsonFile(path, None, skip_bad)
    contexts = file.values(file.require(["context"]), str, "a text")
    questions = file.values(file.require(["input"]), str, "a text")
    column = file.require(["answers"])
    answers = [_first(value) for value in file.values(column, list, "a list of answers")]
    file.refuse(np.array([answer is None for answer in answers]), column, "does not begin with a text")
    notes += file.notes()
    if not file.good.any():
        raise file.nothing_left()
    rows = np.flatnonzero(file.good).tolist()
    notes.append(f"{len(rows)} documents")
    asked = [tokens_of(contexts[row] or "") + tokens_of(questions[row] or "") for row in rows]
    answered = [tokens_of(answers[row] or "") for row in rows]
    return np.array(asked) * CJK_PER_TOKEN, np.array(answered) * CJK_PER_TOKEN


def _first(answers: Any) -> str | None:
    return answers[0] if isinstance(answers, list) and answers and isinstance(answers[0], str) else None
