"""Lengths of VCSum's meeting transcripts and of their summaries: real long documents for offline work.

A line of the segment files (`short_*.txt`) is a part of a meeting: {"av_num", "context": [[sentence]],
"discussion": summary}. The parts of a meeting are put together again.
"""

from pathlib import Path
from typing import Any

import numpy as np

from workloads.files.json_file import JsonFile
from workloads.files.sharegpt_file import CJK_PER_TOKEN

# ConServe's Table 1 counts 18,803 tokens on average where LongBench counts 15,147 characters, but with an
# instruction and another choice of meetings; the tokens of a character are the same as in other Chinese text.
TOKENS_PER_CHAR = 1 / CJK_PER_TOKEN


def read_vcsum(path: Path, notes: list[str], skip_bad: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """(transcript, summary) lengths in characters of each meeting, int64, in the order of the file.

    The summary of a meeting is that of its parts together. UserError names file, line and field of bad input.
    """
    file = JsonFile(path, None, skip_bad)
    meeting = file.whole(file.require(["av_num"]))
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
        isinstance(paragraph, list) and all(isinstance(sentence, str) for sentence in paragraph)
        for paragraph in value
    )


def _characters(value: list[list[str]]) -> int:
    return sum(len(sentence) for paragraph in value for sentence in paragraph)
