"""Lengths of long documents and of their answers or summaries, for batch jobs: rows of LongBench's DuReader and
MultiNews, and VCSum's meeting transcripts."""

from pathlib import Path
from typing import Any

import numpy as np

from workloads.files.json_file import JsonFile
from workloads.files.sharegpt_file import CJK_PER_TOKEN, tokens_of

# ConServe's Table 1 counts 18,803 tokens on average where LongBench counts 15,147 characters, but with an
# instruction and another choice of meetings; the tokens of a character are the same as in other Chinese text.
TOKENS_PER_CHAR = 1 / CJK_PER_TOKEN


def read_vcsum(path: Path, notes: list[str], skip_bad: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """(transcript, summary) lengths in characters of each meeting, int64, in the order of the file.

    A line of VCSum's segment files (`short_*.txt`) is a part of a meeting: {"av_num", "context": [[sentence]],
    "discussion": summary}. The parts of a meeting are put together again, and the summary of a meeting is that of its
    parts together. UserError names file, line and field of bad input.
    """
    file = JsonFile(path, None, skip_bad)
    meeting = file.integers(file.require(["av_num"]))
    column = file.require(["context"])
    parts = file.values(column, list, "a list of paragraphs")
    file.refuse(np.array([not _is_transcript(part) for part in parts]), column, "is not a list of sentences")
    summaries = file.values(file.require(["discussion"]), str, "a text")
    characters = np.array([_characters(part) if _is_transcript(part) else 0 for part in parts])
    file.refuse(characters < 1, column, "has no text")
    notes += file.notes()
    if not file.good.any():
        raise file.nothing_left()
    names, of_part = np.unique(meeting[file.good], return_inverse=True)
    written = np.array([len(text or "") for text in summaries])[file.good]
    notes.append(f"{len(names)} meetings of {int(file.good.sum())} parts")
    document = np.bincount(of_part, characters[file.good]).astype(np.int64)
    return document, np.bincount(of_part, written).astype(np.int64)


def _is_transcript(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(paragraph, list) and all(isinstance(sentence, str) for sentence in paragraph) for paragraph in value
    )


def _characters(value: list[list[str]]) -> int:
    return sum(len(sentence) for paragraph in value for sentence in paragraph)


def read_longbench(path: Path, notes: list[str], skip_bad: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Return (document with question, answer) lengths in Chinese characters, float64, in the order of the file.

    A row has a `context`, an `input` that is asked of it (empty where a summary is wanted), and `answers`, any of
    which is right: the first is taken. A character of another script counts as the part of a Chinese one that has as
    many tokens. UserError names file, line and field of bad input.
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
    input_tokens = [tokens_of(contexts[row] or "") + tokens_of(questions[row] or "") for row in rows]
    output_tokens = [tokens_of(answers[row] or "") for row in rows]
    return np.array(input_tokens) * CJK_PER_TOKEN, np.array(output_tokens) * CJK_PER_TOKEN


def _first(answers: Any) -> str | None:
    return answers[0] if isinstance(answers, list) and answers and isinstance(answers[0], str) else None
