"""Interaction sessions: workload `metronome`, calls in which the user's audio never stops and every frame is
answered.

A frame is a turn of its session: one row of the trace per frame period. Frames are open loop: each begins when it is
due, regardless of the previous one.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import Field, model_validator

from workloads.audio import synth
from workloads.audio.duplex import Stream, content_keys, continuous
from workloads.audio.library import Clip, Library
from workloads.distributions import arrivals, speech
from workloads.errors import UserError
from workloads.seeds import Streams, child_seed
from workloads.trace import Trace, check_turns
from workloads.workload_params import UserParams

# [paper] Metronome, sections 3 and 5.1: 128 sessions for 300 s in frames of 2 s.
SESSIONS, DURATION_S, FRAME_S = 128, 300.0, 2.0
RATE = 64.0  # 128 sessions are connected after 2 s [chosen]
# [derived] 128 sessions fill the paper's pool of 520,000 tokens in its 148 s at 55 tokens a frame: 28 of audio, 21 of
# text around it by the layout of Table 2 (a user's opening, the instruction and the assistant's: 5 + 11 + 5), 7 said,
# "a few tokens" (Fig. 2); the last one is discarded.
TOKENS_PER_FRAME = 7.0
# [chosen] What a frame adds differs between runs ([paper] Fig. 4b: 4 of 10 collapsed on one day, 10 of 10 on another);
# output between users and frames as well.
RUN_CV, SESSION_CV, FRAME_CV = 0.25, 0.3, 0.3
SOUND_RATE = 16_000  # any rate distinguishes frames as well


class CallParams(UserParams):
    """Offered calls; the server decides how many it accepts."""

    sessions: int = Field(SESSIONS, ge=1, le=100_000, description="number of offered sessions")
    rate: float = Field(RATE, ge=1e-6, le=1e6, description="offered sessions per second")
    spacing: Literal["constant", "poisson"] = Field("constant", description="law of the gaps between sessions")
    duration_s: float = Field(
        DURATION_S, gt=0, le=86_400, description="length of the run, to whose end sessions last, s"
    )
    stay_s: float | None = Field(
        None, gt=0, le=86_400, description="length of a session, s; default: to the end of the run"
    )
    frame_s: float = Field(FRAME_S, ge=0.02, le=60, description="period of a frame, and its budget, s")
    tokens_per_frame: float = Field(
        TOKENS_PER_FRAME, gt=0, le=10_000, description="mean output of a frame, text tokens"
    )
    run_cv: float = Field(
        RUN_CV,
        ge=0,
        le=2,
        description="CV between runs of all that a frame adds, heard and said (section 3): one draw a seed",
    )
    session_cv: float = Field(SESSION_CV, ge=0, le=2, description="CV of output between the sessions of a run")
    frame_cv: float = Field(FRAME_CV, ge=0, le=2, description="CV of output between the frames of a session")
    drift: float = Field(
        0.0, gt=-1, le=10, description="change of the mean output per minute of a session, as a share of it"
    )
    staggered: bool = Field(
        True, description="whether each session hears the material from a place of its own; else all hear the same"
    )
    sweep: list[Annotated[int, Field(ge=1, le=100_000)]] | None = Field(
        None,
        min_length=1,
        max_length=1000,
        description="sessions of points measured one after the other on the same worker, each in an equal part of "
        "duration_s and sessions in all (Appendix C); null: one point",
    )
    path: Path | None = Field(None, description="folder of recordings; without one, synthetic speech")
    skip_bad: bool = Field(False, description="pass over unusable recordings and count them")

    @model_validator(mode="after")
    def _swept(self) -> CallParams:
        if self.sweep is not None and sum(self.sweep) != self.sessions:
            raise ValueError(f"sessions={self.sessions} must be the {sum(self.sweep)} of sweep={self.sweep} together")
        return self


def calls(params: CallParams, seed: int) -> Trace:
    """Return calls whose output differs between frames and users, and whose tokens per frame differ between seeds.

    UserError when a session would come too late for a single frame, or there is too little material for as many
    different streams.
    """
    streams, n = Streams(seed), params.sessions
    points = np.array(params.sweep or [n])
    part_s = params.duration_s / len(points)
    begin_s = part_s * np.repeat(np.arange(len(points)), points)
    rng = streams("arrivals") if params.spacing == "poisson" else None
    starts = [
        arrivals.constant(params.rate, k) if rng is None else arrivals.poisson(rng, params.rate, k)
        for k in points.tolist()
    ]
    starts = np.round(begin_s + np.concatenate(starts), 6)
    frames = _frames(params, starts, begin_s + part_s)
    longest = int(frames.max())
    check_turns(longest * n, "set fewer sessions, a shorter duration_s or a longer frame_s")
    session = np.repeat(np.arange(n), frames)
    turn = np.arange(len(session)) - np.repeat(np.cumsum(frames) - frames, frames)

    run = float(speech.lognormal(streams("run"), 1.0, params.run_cv, 1)[0])
    mean = params.tokens_per_frame * run * speech.lognormal(streams("sessions"), 1.0, params.session_cv, n)
    # Drawn frame by frame, so a longer run only adds to a shorter one.
    spread = speech.lognormal(streams("frames"), 1.0, params.frame_cv, longest * n).reshape(longest, n)
    trend = np.maximum(0.0, 1 + params.drift * params.frame_s / 60 * turn)

    clips, notes = _material(params)
    sounds = _streams(params, seed, clips)
    audio_s = np.full(len(session), params.frame_s)
    columns = {
        "session": session,
        "turn": turn,
        "arrival_s": starts[session] + params.frame_s * turn,
        "modality": "audio",
        "input_tokens": np.maximum(np.rint(run * speech.audio_tokens(audio_s)), 1).astype(np.int64),
        "audio_s": audio_s,
        "output_tokens": np.maximum(np.rint(mean[session] * spread[turn, session] * trend), 1),
        "network_s": speech.network_delays(streams("jitter"), params.network_ms, n)[session],
        "content": content_keys(sounds, longest, params.frame_s)[session, turn],
    }
    return Trace.made(
        "metronome", params, streams, columns, [f"a frame adds {run:.3f} of the mean in this run", *notes]
    )


def streams(params: CallParams, seed: int, rate: int = SOUND_RATE) -> list[Stream]:
    return _streams(params, seed, _material(params)[0], rate)


def _streams(params: CallParams, seed: int, clips: Sequence[Clip], rate: int = SOUND_RATE) -> list[Stream]:
    return continuous(clips, params.sessions, rate, child_seed(seed, "material"), params.staggered)


def _frames(params: CallParams, starts: np.ndarray, ends_s: np.ndarray) -> np.ndarray:
    lasts_s = np.minimum(ends_s - starts, params.stay_s or np.inf)
    frames = np.floor(np.round(lasts_s / params.frame_s, 6)).astype(np.int64)
    if frames.min() < 1:
        late = int(np.argmin(frames))
        raise UserError(
            f"session {late} would come at {starts[late]:g} s and stay {max(lasts_s[late], 0.0):g} s, which holds no "
            f"frame of {params.frame_s:g} s; set frame_s lower, duration_s or stay_s higher, or rate higher."
        )
    return frames


def _material(params: CallParams) -> tuple[list[Clip], list[str]]:
    if params.path is None:
        return list(synth.synthetic_clips()), [synth.NOTE]
    library = Library.scan(params.path, params.skip_bad)
    note = f"audio: {len(library.clips)} recordings, {library.seconds:.0f} s, played without pause"
    return list(library.clips), [note, *library.notes(SOUND_RATE)]
