"""The quality of answers to spoken questions: whether their words state the right answer (Metronome section 5.4).

The scorer is lenient, as the paper's: an answer is right when one of its question's keywords stands in it as whole
words, whatever else does. Letter case, accents and punctuation do not matter.
"""

import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from harness.metrics.definitions import Definition, share_of
from harness.metrics.metric import Measured, Metric, metrics_of
from workloads.errors import UserError
from workloads.trace import Trace

Decode = Callable[[Sequence[int]], str]
Answers = Iterable[tuple[int, int, Sequence[int]]]
"""(session, frame that it answers, token ids), in the order in which it was said."""

OUTPUTS = pa.schema(
    [
        ("session", pa.int32()),
        ("frame", pa.int32()),
        ("tokens", pa.list_(pa.int32())),
        ("text", pa.string()),
        ("right", pa.bool_()),
    ]
)
"""outputs.parquet: a row for each frame that was answered. `right`: its text alone states a keyword."""

ANSWERS = pa.schema(
    [
        ("session", pa.int32()),
        ("segment", pa.int32()),
        ("kind", pa.string()),
        ("file", pa.string()),
        ("keywords", pa.list_(pa.string())),
        ("text", pa.string()),
        ("answered", pa.bool_()),
    ]
)
"""answers.parquet: a row for each question of each session. `text`: all that was said while it played."""


_SEGMENT = "output in the segment of a question that states a keyword of it, sessions without output included"
_MID = f"{_SEGMENT}; mode free, segments after the first and before the fresh question (ages 30 to 240 s)"

QUALITY_DEFINITIONS: dict[str, Definition] = {
    "answered_mid_call": share_of("share of sessions that answer the question playing", _MID, "higher"),
    "answered_mid_low": share_of("the same share in the segment where it is lowest", _MID, "higher"),
    "answered_mid_high": share_of("the same share in the segment where it is highest", _MID, "higher"),
    "answered_mid_end": share_of("the same share in the last of these segments", _MID, "higher"),
    "answered_fresh": share_of("share of sessions that answer the fresh question", _SEGMENT, "higher"),
    "answered_recall": share_of(
        "share of sessions whose output to the recall states a keyword of their first question", _SEGMENT, None),
    "answer_stated": share_of(
        "share of sessions that state the answer in some frame", "over sessions; mode turns", "higher"),
    "frames_right": share_of(
        "share of answers to a frame that state a keyword of its question",
        "over frames answered; mode turns", "higher"),
}  # fmt: skip
"""Every metric that `summarise_quality` returns, in its order; those of the other mode are missing."""


@dataclass(frozen=True)
class Quality:
    """The tables OUTPUTS and ANSWERS."""

    outputs: pa.Table
    answers: pa.Table


def decoder_of(checkpoint: str) -> Decode:
    """Return token ids to text with the tokenizer of a checkpoint's folder; UserError when it has none."""
    from transformers import AutoTokenizer

    try:
        tokenizer: Any = AutoTokenizer.from_pretrained(checkpoint, local_files_only=True)
    except (OSError, ValueError, KeyError) as error:
        raise UserError(
            f"checkpoint {checkpoint} has no tokenizer that can be read ({str(error).splitlines()[0]}); give the "
            "folder as it was published."
        ) from None
    return lambda ids: tokenizer.decode(list(ids), skip_special_tokens=True)


def states(text: str, keywords: Iterable[str]) -> bool:
    """Return whether one of the keywords is in the text as whole words."""
    within = f" {_plain(text)} "
    return any(f" {_plain(word)} " in within for word in keywords)


def judge(trace: Trace, frame_answers: Answers, decode: Decode) -> Quality:
    """Score the answers in a run of workload `questions`, whose folder must be as it was."""
    from workloads.audio.question_file import read_questions
    from workloads.generators.questions import assigned_questions, params_of, segment_of

    params = params_of(trace)
    assert params is not None, "only workload questions says what is right"
    expected = assigned_questions(params, trace.header.seed, read_questions(params.questions))
    frames: dict[tuple[int, int], list[int]] = {}
    for session, frame, ids in frame_answers:
        frames.setdefault((session, frame), []).extend(ids)
    outputs, spoken = [], dict[tuple[int, int], list[int]]()
    for (session, frame), ids in sorted(frames.items()):
        segment = int(segment_of(params, np.array(frame)))
        text = decode(ids)
        right = states(text, expected[session][segment].keywords)
        outputs.append((session, frame, ids, text, right))
        spoken.setdefault((session, segment), []).extend(ids)
    answers = []
    for session, questions in enumerate(expected):
        for segment, question in enumerate(questions):
            text = decode(spoken.get((session, segment), []))
            answered = states(text, question.keywords)
            about = question.kind, question.clip.name, list(question.keywords)
            answers.append((session, segment, *about, text, answered))
    return Quality(_table(outputs, OUTPUTS), _table(answers, ANSWERS))


def shares(answers: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Return the segments in their order, and the share of sessions that answered in each; `answers` as in ANSWERS."""
    segment, answered = (np.asarray(answers[name]) for name in ("segment", "answered"))
    segments, of_row = np.unique(segment, return_inverse=True)
    return segments, np.bincount(of_row, answered.astype(float)) / np.bincount(of_row)


def summarise_quality(trace: Trace, outputs: pd.DataFrame, answers: pd.DataFrame) -> dict[str, Metric]:
    """Return the metrics of QUALITY_DEFINITIONS, in their order; `outputs` and `answers` as of `judge`."""
    from workloads.generators.questions import params_of

    params = params_of(trace)
    assert params is not None, "only workload questions says what is right"
    planned = len(trace)
    kind, segment = np.asarray(answers["kind"]), np.asarray(answers["segment"])
    answered = np.asarray(answers["answered"], bool)
    measured: dict[str, Measured] = dict.fromkeys(QUALITY_DEFINITIONS, (None, 0, 0))
    if params.mode == "free":
        mid = (kind == "question") & (segment > 0)
        if mid.any():
            _, ratios = shares(answers.loc[mid])
            values = {"call": ratios.mean(), "low": ratios.min(), "high": ratios.max(), "end": ratios[-1]}
            for name, value in values.items():
                measured[f"answered_mid_{name}"] = float(value), int(mid.sum()), 0
        for name in ("fresh", "recall"):
            among = kind == name
            measured[f"answered_{name}"] = float(answered[among].mean()), int(among.sum()), 0
    else:
        right = np.asarray(outputs["right"], bool)
        stated = len(np.unique(np.asarray(outputs["session"])[right]))
        measured["answer_stated"] = stated / params.sessions, params.sessions, 0
        share = float(right.mean()) if right.size else None
        measured["frames_right"] = share, right.size, planned - right.size
    return metrics_of(measured, QUALITY_DEFINITIONS, [dict])


def _table(rows: list[tuple[Any, ...]], schema: pa.Schema) -> pa.Table:
    columns = zip(*rows, strict=True) if rows else [()] * len(schema)
    return pa.table([pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)], schema)


def _plain(text: str) -> str:
    """Return lower case without accents; everything but letters and digits is a space."""
    letters = unicodedata.normalize("NFKD", text.casefold())
    kept = (c if c.isalnum() else " " for c in letters if not unicodedata.combining(c))
    return " ".join("".join(kept).split())
