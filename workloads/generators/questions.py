"""Workload `questions`: callers who ask aloud without pause, for the quality probes of Metronome (section 5.4).

free    a question fills each segment, another one in the next; the last but one is fresh, the last asks for the first
        (Table 2, Fig. 8). The session speaks without end.
turns   as many questions as segments, one in the probe of Appendix D. To each frame an answer, which ends itself.

A question is repeated until its segment is over. The required keywords of the answers are in the folder with the
recordings (`workloads.audio.question_file`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field, model_validator

from workloads.audio.duplex import Part, Stream
from workloads.audio.library import CHUNK_S
from workloads.audio.question_file import KINDS, Question, Questions, read_questions
from workloads.distributions import arrivals, speech
from workloads.errors import UserError
from workloads.seeds import Streams, stream
from workloads.trace import Trace, check_turns
from workloads.workload_params import UserParams

GENERATOR = "questions"
SOUND_RATE = 16_000  # Qwen3-Omni's rate, at which frames are distinguished
RATE = 64.0  # [chosen] as workload metronome
# [derived] 80 tokens a frame fill 74 % of the pool at 32 sessions in 300 s (Table 2): 28 of audio and 53 of output, of
# which the last is discarded.
TOKENS_PER_FRAME = 53
# [derived] Qwen's chat text has the lengths of Table 2's token layout: header [0, 14), assistant-open [53, 58).
HEADER = "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\n"
OPEN = "<|im_end|>\n<|im_start|>assistant\n"
NEXT = "<|im_end|>\n<|im_start|>user\n"
END = "<|im_end|>"
# [chosen] Eleven words and points, as the layout's instruction [42, 53) has tokens; its text is not published.
INSTRUCTION = "Listen and answer the spoken question in one short sentence."


class QuestionParams(UserParams):
    """Parameters of the questions: askers, times, and the longest answer."""

    questions: Path = Field(
        description="folder with recordings of spoken questions and questions.jsonl, a line for each: "
        '{"file": ..., "keywords": [...]}, and "kind": "fresh" or "recall" for those at the end of a call'
    )
    mode: Literal["free", "turns"] = Field(
        "free", description="free: it speaks without end; turns: an answer to each frame, which ends itself"
    )
    sessions: int = Field(32, ge=1, le=100_000, description="number of sessions: 32 [paper], Table 2")
    rate: float = Field(RATE, ge=1e-6, le=1e6, description="sessions that begin per second")
    segments: int = Field(10, ge=1, le=1000, description="questions of a session one after the other: 10 [paper]")
    segment_s: float = Field(30.0, gt=0, le=3600, description="how long each is repeated, s: 30 [paper], Fig. 8")
    frame_s: float = Field(2.0, ge=0.02, le=60, description="period of a frame, and its budget, s [paper]")
    tokens_per_frame: int = Field(
        TOKENS_PER_FRAME,
        ge=1,
        le=10_000,
        description="output of a frame, text tokens; in turns the most that an answer may have",
    )
    instruction: str = Field(
        INSTRUCTION, min_length=1, description="instruction of a session: what to do with the audio"
    )

    @model_validator(mode="after")
    def _has_an_end(self) -> QuestionParams:
        if self.mode == "free" and self.segments < 3:
            raise ValueError("segments must be 3 or more in mode free: a question, a fresh one and the recall")
        if self.segments * self.segment_s < self.frame_s:
            raise ValueError(f"segments of {self.segment_s:g} s hold no frame of {self.frame_s:g} s")
        return self


@dataclass(frozen=True)
class Words:
    """The text around the audio of a session's frames, where a model reads it: before and after the first one's, and
    before and after that of each later one; `end`: the token that ends an answer, or None where nothing does."""

    first: tuple[str, str]
    later: tuple[str, str]
    end: str | None


def words(params: QuestionParams) -> Words:
    """Return Qwen's chat text. In free speech it opens a session once; in turns each frame is a message of the user."""
    instruction = params.instruction + OPEN
    if params.mode == "free":
        return Words((HEADER, instruction), ("", ""), None)
    return Words((HEADER, instruction), (NEXT, instruction), END)


def params_of(trace: Trace) -> QuestionParams | None:
    """Reads the parameters back from a trace of this workload; None for others."""
    header = trace.header
    return QuestionParams.model_validate(header.params) if header.generator == GENERATOR else None


def segment_of(params: QuestionParams, frame: np.ndarray) -> np.ndarray:
    """The segment in which each frame begins."""
    return np.floor(np.round(frame * params.frame_s / params.segment_s, 9)).astype(np.int64)


def assigned_questions(params: QuestionParams, seed: int, material: Questions) -> list[list[Question]]:
    """Return the question that each session hears in each segment; a recall has the session's first question's
    keywords.

    UserError when mode free lacks a fresh question or a recall.
    """
    order = stream(seed, GENERATOR).permutation(len(material.questions))
    rotating = [material.questions[place] for place in order]
    last = params.segments if params.mode == "turns" else params.segments - 2
    if params.mode == "free":
        for kind, questions in zip(KINDS[1:], (material.fresh, material.recall), strict=True):
            if not questions:
                raise UserError(
                    f"{params.questions} has no question of kind {kind!r}, which mode free asks at the end; add one, "
                    "or set mode=turns."
                )
    sessions = []
    for session in range(params.sessions):
        heard = [rotating[(session + segment) % len(rotating)] for segment in range(last)]
        if params.mode == "free":
            recall = material.recall[session % len(material.recall)]
            heard.append(material.fresh[session % len(material.fresh)])
            heard.append(replace(recall, keywords=heard[0].keywords))
        sessions.append(heard)
    return sessions


def streams(params: QuestionParams, seed: int, rate: int = SOUND_RATE) -> list[Stream]:
    """Return the sound of each session. Sessions with the same questions begin at different places of the
    recordings."""
    return _streams(params, assigned_questions(params, seed, read_questions(params.questions)), rate)


def _streams(params: QuestionParams, assigned: Sequence[Sequence[Question]], rate: int) -> list[Stream]:
    packet, alike = round(CHUNK_S * rate), {}
    for session, questions in enumerate(assigned):
        alike.setdefault(questions[0], []).append(session)
    sounds: dict[int, Stream] = {}
    for first, sessions in alike.items():
        if len(sessions) > int(first.clip.seconds / CHUNK_S):
            raise UserError(
                f"{len(sessions)} sessions begin with {first.clip.name}, which has fewer places to begin at; add "
                f"questions to {params.questions}."
            )
        for place, session in enumerate(sessions):
            parts: list[Part] = []
            for segment, question in enumerate(assigned[session]):
                begin, end = (round(at * params.segment_s * rate) for at in (segment, segment + 1))
                length = int(question.clip.seconds * rate)
                at = length // packet * place // len(sessions) * packet
                parts += _repeated(question, at, length, end - begin)
            sounds[session] = Stream(parts, rate)
    return [sounds[session] for session in range(len(assigned))]


def _repeated(question: Question, at: int, length: int, total: int) -> list[Part]:
    """`total` samples of a clip of `length`, from sample `at` and then from its start, again and again."""
    parts = []
    while total > 0:
        taken = min(length - at, total)
        parts.append(Part(question.clip, at, taken))
        total, at = total - taken, 0
    return parts


def questions(params: QuestionParams, seed: int) -> Trace:
    """Return one row per frame; its content depends on the sound and the keywords, so other keywords give another
    trace."""
    material, n = read_questions(params.questions), params.sessions
    frames = int(round(params.segments * params.segment_s / params.frame_s, 6))
    check_turns(max(frames, params.segments) * n, "set fewer sessions or segments, or a longer frame_s")
    assigned = assigned_questions(params, seed, material)
    sounds = _streams(params, assigned, SOUND_RATE)
    session, turn = np.repeat(np.arange(n), frames), np.tile(np.arange(frames), n)
    draws = Streams(seed)
    audio_s = np.full(len(session), params.frame_s)
    columns = {
        "session": session,
        "turn": turn,
        "arrival_s": np.round(arrivals.constant(params.rate, n), 6)[session] + params.frame_s * turn,
        "modality": "audio",
        "input_tokens": speech.audio_tokens(audio_s),
        "audio_s": audio_s,
        "output_tokens": params.tokens_per_frame,
        "network_s": speech.network_delays(draws("jitter"), params.network_ms, n)[session],
        "content": [
            sounds[row].content_key(frame, params.frame_s) ^ material.digest
            for row, frame in zip(session.tolist(), turn.tolist(), strict=True)
        ],
    }
    rotating = params.segments - (2 if params.mode == "free" else 0)
    notes = [f"questions: {len(material.questions)}, and of kind fresh {len(material.fresh)}"]
    if rotating > len(material.questions):
        notes.append(f"a session hears {rotating} questions in turn, so some come again")
    return Trace.from_columns(
        columns,
        generator=GENERATOR,
        params=params.model_dump(mode="json"),
        seed=seed,
        streams=[GENERATOR, *draws.names],
        notes=notes,
    )
