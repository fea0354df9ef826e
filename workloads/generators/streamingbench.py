"""People who watch a video and ask about it: workload `streamingbench`; with voice dialogues on the same service:
workload `omni_mix`, LiveServe's mixed workload.

A session is one video. Its questions come at their time stamps, and with each the model is shown the frames since
the question before. Questions and times are those of a file, or drawn from their statistics.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from pydantic import Field, model_validator

from workloads.distributions import arrivals, lengths
from workloads.distributions.lengths import Lengths, QuantileTable
from workloads.files.streamingbench_file import Questions, read_streamingbench
from workloads.generators.dialogues import number_turns, sum_before
from workloads.generators.exchanges import PROMPT_LENGTHS, Content, ExchangeParams, exchange_columns
from workloads.generators.voice import VoiceParams, voice
from workloads.seeds import Streams, child_seed
from workloads.trace import Trace
from workloads.transforms.combine import combined, mixture
from workloads.workload_params import WorkloadParams

QUESTIONS = 5  # per video, in 490 of the 498 of real_stream
# Seconds to the first question of a video, and between one and the next (1 s stands for 0, so that it has a
# logarithm): real_stream, 498 and 1,994 values. Uneven: many gaps are a fifth of the ten minutes of a video.
_SHARES = (0, 0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1)
_SOURCE = "StreamingBench, questions_real_stream, MIT"
FIRST_S = QuantileTable(_SHARES, (1, 2, 3, 4, 6, 9, 10, 12, 16, 18, 20, 35, 118, 192, 323), _SOURCE)
GAP_S = QuantileTable(_SHARES, (1, 1, 7, 18, 59, 90, 110, 122, 131, 147, 168, 197, 230, 322, 692), _SOURCE)
# Choice: two frames a second of 640 x 352 pixels; Qwen3-Omni makes a token of two frames of 32 x 32 pixels: 20 x 11.
VIDEO_TOKENS_PER_S = 220.0
# Choice, unconfirmed: StreamingBench is said to show models that cannot stream the 60 s before the question.
SHOWN_S = 60.0


class StreamingBenchParams(ExchangeParams):
    """Parameters of viewers of videos, who arrive as a Poisson process."""

    sessions: int = Field(32, ge=1, le=1_000_000, description="number of viewers, a video each")
    rate: float = Field(0.1, ge=1e-6, le=1e6, description="arriving viewers per second, Poisson")
    path: Path | None = Field(None, description="a StreamingBench file (questions_*.json); default: its statistics")
    skip_bad: bool = Field(False, description="go on past bad questions, and note how many there were")
    video_tokens_per_s: float = Field(VIDEO_TOKENS_PER_S, ge=0, le=1e5, description="tokens of a second of video")
    shown_s: float = Field(
        SHOWN_S, ge=0, le=1e5, description="longest part of the video before a question that is shown, s"
    )

    @model_validator(mode="after")
    def _file_or_law(self) -> StreamingBenchParams:
        self.replaces("path", *PROMPT_LENGTHS)
        return self

    def _prompt_law(self) -> Lengths:
        return lengths.SPOKEN_QUESTION if self.modality == "audio" else lengths.TYPED_QUESTION


def streamingbench(params: StreamingBenchParams, seed: int) -> Trace:
    """Questions at their times in videos; UserError names file, question and field of bad input."""
    streams, notes = Streams(seed), list[str]()
    if params.path is None:
        counts = np.full(params.sessions, QUESTIONS)
        session, turn = number_turns(counts)
        content = params.drawn(streams, len(session))
        first = FIRST_S.quantile(streams("first question").random(len(session)))
        gap = GAP_S.quantile(streams("gaps").random(len(session)))
        waits = np.where(turn == 0, first, gap)
        asked_s = sum_before(waits, turn) + waits
    else:
        asked = read_streamingbench(params.path, notes, params.skip_bad)
        rows, session, turn = _watched(asked, params.sessions, streams)
        asked_s = asked.time_s[rows]
        content = _content(asked, rows, params, streams)
    shown_s = np.minimum(asked_s - np.where(turn > 0, np.roll(asked_s, 1), 0.0), params.shown_s)
    visual = np.rint(shown_s * params.video_tokens_per_s).astype(np.int64)
    columns = exchange_columns(params, streams, session, content)
    starts = arrivals.poisson(streams("arrivals"), params.rate, params.sessions)
    columns |= {
        "turn": turn,
        "arrival_s": starts[session] + asked_s,
        "input_tokens": columns["input_tokens"] + visual,
        "visual_tokens": visual,
    }
    notes.append(f"video: {params.video_tokens_per_s:g} tokens/s, at most {params.shown_s:g} s before a question")
    return Trace.made("streamingbench", params, streams, columns, [*notes, *content.notes])


def _watched(asked: Questions, viewers: int, streams: Streams) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(row of the question, session, turn) of each turn, when every viewer takes a video at random."""
    starts = np.flatnonzero(np.diff(asked.video, prepend=-1))
    counts = np.diff(starts, append=len(asked.video))
    videos = streams("videos").choice(len(starts), viewers)
    session, turn = number_turns(counts[videos])
    return starts[videos][session] + turn, session, turn


def _content(asked: Questions, rows: np.ndarray, params: StreamingBenchParams, streams: Streams) -> Content:
    tokens = asked.spoken_tokens if params.modality == "audio" else asked.typed_tokens
    replies = params.replies()
    return Content(tokens[rows], replies.sample(streams("replies"), len(rows)), replies.sample, [f"replies: {replies}"])


class OmniMixParams(StreamingBenchParams):
    """Extends StreamingBenchParams; `sessions` and `rate` are totals of both kinds."""

    sessions: int = Field(64, ge=2, le=1_000_000, description="number of sessions of both kinds together")
    rate: float = Field(0.5, ge=1e-6, le=1e6, description="arriving sessions per second of both kinds, Poisson")
    video_share: float = Field(0.5, gt=0, lt=1, description="share of the sessions that watch a video")
    turns: float = Field(3.0, ge=1, le=1000, description="mean turns per voice session, geometric")


Params = TypeVar("Params", bound=WorkloadParams)


def _part(model: type[Params], given: Mapping[str, Any]) -> Params:
    """Return the parameters of one kind of session; missing ones have that kind's defaults. A part of a valid rate may
    be below the least that a user may set."""
    fields = {name: v for name, v in given.items() if name in model.model_fields and v is not None}
    return model.model_construct(**fields)


def omni_mix(params: OmniMixParams, seed: int) -> Trace:
    """Return two independent Poisson processes, one of each kind, with rates by the shares."""
    viewers = min(max(round(params.sessions * params.video_share), 1), params.sessions - 1)
    share = viewers / params.sessions
    given = params.model_dump()
    watched = given | {"sessions": viewers, "rate": params.rate * share}
    spoken = given | {"sessions": params.sessions - viewers, "rate": params.rate * (1 - share)}
    parts = [
        streamingbench(_part(StreamingBenchParams, watched), child_seed(seed, "video")),
        voice(_part(VoiceParams, spoken), child_seed(seed, "voice")),
    ]
    mixed = combined(parts)
    note = f"{viewers} viewers of videos, {params.sessions - viewers} voice sessions"
    return mixture("omni_mix", params, seed, parts, mixed.columns(), [note, *mixed.header.notes])
