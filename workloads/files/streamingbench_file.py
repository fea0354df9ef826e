"""Questions of StreamingBench with their times in the videos, in all its layouts.

`questions_real.json` and others are lists of {"questions": [...], "video_path"}, one or more entries a video;
`questions_sqa.json` is a list of such lists; `*_stream.json` has one entry a video. On the hub each question is a row,
whose `question_id` is that of its video and a number, with its options written as a Python list. A question's
`time_stamp` is H:MM:SS, with one digit or two.
"""

import ast
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from workloads.files.json_file import JsonFile
from workloads.files.sharegpt_file import tokens_of

# Also without hours or with one digit of seconds, as two of its stamps are ("00:24", "00:00:8").
_STAMP = re.compile(r"(-?)(?:(\d{1,2}):)?(\d{1,2}):(\d{1,2})")
_NUMBER = re.compile(r"_\d+$")
LONGEST_S = 2 * 3600  # choice: no video is as long, so that a later stamp is a slip ("05:11:00")


@dataclass(frozen=True)
class Questions:
    """Arrays of shape (questions,), by video and by time in it: index of the video 0.., s, text tokens.

    spoken_tokens: the question alone; typed_tokens: with the options to choose from.
    """

    video: np.ndarray
    time_s: np.ndarray
    spoken_tokens: np.ndarray
    typed_tokens: np.ndarray


def read_streamingbench(path: Path, notes: list[str], skip_bad: bool = False) -> Questions:
    """The questions of a file; UserError names file, question and field of bad input.

    Stamps that cannot be read are dirt of the data: those questions are dropped and counted in any case.
    """
    file = JsonFile(path, None, skip_bad, flatten=_questions)
    file.word, file.rows = "question", "questions"
    texts = file.values(file.require(["question"]), str, "a text")
    stamps = file.values(file.require(["time_stamp"]), str, "a text")
    column = file.require(["video_path", "question_id"])
    names = file.values(column, str, "a text")
    if column == "question_id":
        names = [name and _NUMBER.sub("", name) for name in names]
    options = [_options(value) for value in file.optional("options")]
    file.refuse(np.array([text is None for text in options]), "options", "is not a list of texts")
    notes += file.notes()
    if not file.good.any():
        raise file.nothing_left()
    rows = np.flatnonzero(file.good)
    time_s = np.array([seconds(stamps[row]) for row in rows])
    _count(notes, np.isnan(time_s), len(rows), "dropped: their time stamp cannot be read")
    _count(notes, time_s > LONGEST_S, len(rows), f"dropped: their time stamp is after {LONGEST_S} s")
    _count(notes, time_s < 0, len(rows), "with a negative time stamp, set to 0")
    kept = time_s <= LONGEST_S
    if not kept.any():
        raise file.nothing_left()
    rows, time_s = rows[kept], np.maximum(time_s[kept], 0.0)
    video = np.unique([names[row] for row in rows], return_inverse=True)[1]
    back = np.sum((np.diff(time_s) < 0) & (np.diff(video) == 0))
    if back:
        notes.append(f"{back} questions earlier in their video than the one before: sorted by time")
    order = np.lexsort((time_s, video))
    spoken = np.array([tokens_of(texts[row]) for row in rows])
    typed = spoken + np.array([tokens_of(options[row] or "") for row in rows])
    tokens = [np.maximum(np.ceil(values), 1).astype(np.int64)[order] for values in (spoken, typed)]
    return Questions(video[order], time_s[order], *tokens)


def seconds(stamp: str) -> float:
    """A time stamp in s; NaN when it is none."""
    match = _STAMP.fullmatch(stamp.strip())
    if match is None or int(match[3]) > 59 or int(match[4]) > 59:
        return np.nan
    total = int(match[2] or 0) * 3600 + int(match[3]) * 60 + int(match[4])
    return float(-total if match[1] else total)


def _count(notes: list[str], which: np.ndarray, total: int, what: str) -> None:
    if which.any():
        notes.append(f"{which.sum()} of {total} questions {what}")


def _options(value: Any) -> str | None:
    """Return the options as one text; None if they are not a list of texts."""
    if value is None or value == "":
        return ""
    if isinstance(value, str):
        try:
            value = ast.literal_eval(value)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            return None
    good = isinstance(value, list) and all(isinstance(option, str) for option in value)
    return " ".join(value) if good else None


def _questions(document: list[Any]) -> list[Any]:
    """Return the questions of all entries, each with the path of its video; an invalid entry is returned as it is."""
    flat: list[Any] = []
    for item in document:
        entries = item if isinstance(item, list) else [item]
        for entry in entries:
            questions = entry.get("questions") if isinstance(entry, dict) else None
            if not isinstance(questions, list) or not questions:
                flat.append(entry)
                continue
            video = {"video_path": entry.get("video_path")}
            flat += [question | video if isinstance(question, dict) else question for question in questions]
    return flat
