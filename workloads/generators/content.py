"""The sound of each turn of a trace, for a live client.

A trace has the length of each turn's speech; its header's notes list the utterances. Each session goes through them
in order, from a place of its own, so it says all before it repeats one. For calls without pause the workload defines
the sound of each frame.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from workloads.audio import library, voice
from workloads.audio.degrade import Degradation
from workloads.audio.library import Clip
from workloads.audio.phrases import Phrases
from workloads.audio.synth import synthetic_clips
from workloads.audio.utterances import Utterance
from workloads.columns.duplex_events import TAKES_FLOOR
from workloads.errors import UserError
from workloads.seeds import stream
from workloads.trace import Trace, Turn

if TYPE_CHECKING:
    from workloads.audio.duplex import Stream

RAMP_S = 0.005  # fade of cut or synthetic sounds, against clicks [chosen]
LEVEL_DB = {"backchannel": 0.0, "side_speech": "side_db", "background_speech": "background_db", "noise": "noise_db"}
"""Level of each sound below the user's speech, in dB, or the parameter that sets it."""


AnyUtterance = Utterance | Phrases


def hesitating(pcm: np.ndarray, turn: Turn, rate: int) -> np.ndarray:
    """`pcm`, int16 of shape (samples,), with the turn's pause in it, as silence."""
    if turn.microphone.pause_s is None or turn.microphone.pause_after_s is None:
        return pcm
    at = round(turn.microphone.pause_after_s * rate)
    return np.concatenate([pcm[:at], np.zeros(round(turn.microphone.pause_s * rate), np.int16), pcm[at:]])


def event_sound(
    turn: Turn, spoken: AnyUtterance, clips: Sequence[AnyUtterance], params: Mapping[str, Any], seed: int, rate: int
) -> np.ndarray:
    """Return int16 samples of the turn's event that does not take the floor, shape (event_s * rate,). `spoken`: the
    clip of the turn; `clips`: all of them. Another speaker says another clip, if there is one.

    Levels are those of the speech: its RMS, as `Phrases` have no silences. Other speakers are in the same room and at
    the same telephone; the noise of `snr_db` is added to the turns.
    """
    assert turn.microphone.event is not None and turn.microphone.event_s is not None, "the turn has an event"
    rng = stream(seed, f"event {turn.session} {turn.turn}")
    samples = round(turn.microphone.event_s * rate)
    if turn.microphone.event == "noise":
        sound = _rustle(rng, samples)
    else:
        others = [utterance for utterance in clips if utterance.clip != spoken.clip] or list(clips)
        sound = _speech(rng, others if turn.microphone.event == "background_speech" else clips, samples, rate)
    sound *= _ramps(samples, rate)
    below = LEVEL_DB[turn.microphone.event]
    below_db = params[below] if isinstance(below, str) else below
    sound *= _rms(spoken.pcm(rate)) * 10 ** (-below_db / 20) / max(_rms(sound), 1e-9)
    pcm = np.clip(np.rint(sound), -32768, 32767).astype(np.int16)
    degradation = Degradation(None, params.get("reverb_s"), params.get("codec"))
    return degradation.applied(pcm, rate, seed, turn.session, turn.turn)


def _speech(rng: np.random.Generator, clips: Sequence[AnyUtterance], samples: int, rate: int) -> np.ndarray:
    """Return the speech from a drawn place on, until it is long enough."""
    at, pieces, got = int(rng.integers(len(clips))), [], 0
    while got < samples:
        pieces.append(clips[at % len(clips)].pcm(rate))
        got += len(pieces[-1])
        at += 1
    return np.concatenate(pieces)[:samples].astype(np.float64)


def _rustle(rng: np.random.Generator, samples: int) -> np.ndarray:
    """Pink noise."""
    spectrum = np.fft.rfft(rng.standard_normal(samples))
    return np.fft.irfft(spectrum / np.sqrt(np.maximum(np.arange(len(spectrum)), 1)), samples)


def _ramps(samples: int, rate: int) -> np.ndarray:
    """0 to 1 within the first 5 ms and back within the last, from the first sample to the last."""
    edge = np.minimum(np.arange(1, samples + 1), np.arange(samples, 0, -1)) / max(1.0, RAMP_S * rate)
    return np.minimum(edge, 1.0)


def _rms(sound: np.ndarray) -> float:
    return float(np.sqrt(np.mean(sound.astype(np.float64) ** 2)))


def _calls(params: dict[str, Any], seed: int, rate: int) -> list[Stream]:
    from workloads.generators import calls

    return calls.streams(calls.CallParams(**params), seed, rate)


def _questions(params: dict[str, Any], seed: int, rate: int) -> list[Stream]:
    from workloads.generators import questions

    return questions.streams(questions.QuestionParams(**params), seed, rate)


STREAMED: dict[str, Callable[[dict[str, Any], int, int], list[Stream]]] = {"metronome": _calls, "questions": _questions}
"""Workloads of calls without pause by generator: parameters, seed and samples/s -> the sound of each session."""
STREAM = "utterances"
_DIGITS = 16  # of the sha256 in a note
_SPAN = r"\d+\.\d\d-\d+\.\d\d"
_NOTE = re.compile(rf"utterance: (.+) sha256 ([0-9a-f]{{{_DIGITS}}}) ({_SPAN}(?:,{_SPAN})*) s")


def note(utterance: AnyUtterance) -> str:
    """Return a line of a header that identifies the utterances and proves that they are unchanged."""
    spans = ",".join(f"{begin_s:.2f}-{end_s:.2f}" for begin_s, end_s in utterance.spans)
    return f"utterance: {utterance.clip.name} sha256 {utterance.clip.sha256[:_DIGITS]} {spans} s"


def places(rng: np.random.Generator, sessions: int, utterances: int) -> np.ndarray:
    """Return the first utterance of each session, shape (sessions,)."""
    return (rng.random(sessions) * utterances).astype(np.int64)


def tells_what_is_said(trace: Trace) -> bool:
    """Return whether `pcm_for` knows the sound of the trace's spoken turns; true without spoken turns."""
    return (
        trace.header.generator in STREAMED
        or bool(np.all(trace.columns()["modality"] != "audio"))
        or any(_NOTE.fullmatch(line) for line in trace.header.notes)
    )


def speech_source(trace: Trace) -> str | None:
    """Return which speech the users' turns are, as their trace's header says; None without spoken turns.

    recordings   of people
    voice NAME   sentences that a synthesizer spoke; also where the trace says how long users speak, but not what
    synthetic    sounds of `workloads.audio.synth`, without words, whose end a detector of turns may not recognise
    """
    header = trace.header
    if np.all(trace.columns()["modality"] != "audio"):
        return None
    named = [match[1] for match in map(_NOTE.fullmatch, header.notes) if match]
    if header.params.get("path") is not None and (named or header.generator in STREAMED):
        return "recordings"
    made_in_code = {clip.name for clip in synthetic_clips()}
    return "synthetic" if header.generator in STREAMED or made_in_code & set(named) else f"voice {voice.NAME}"


def recordings(trace: Trace) -> dict[str, Path]:
    """The files that `pcm_for` reads, by their names below the trace's folder; none where speech is synthesised."""
    folder = trace.header.params.get("path")
    named = {match[1] for match in map(_NOTE.fullmatch, trace.header.notes) if match}
    if folder is None or not (named or trace.header.generator in STREAMED):
        return {}
    return {name: Path(folder) / name for name in sorted(named) or library.audio_files(Path(folder))}


def pcm_for(trace: Trace, turn: Turn, rate: int = 16_000) -> Iterator[bytes]:
    """Return the user's sound in `turn`, as packets of 20 ms of little-endian int16 mono at `rate` samples/s.

    The sound is the same on every call. UserError when the trace names no utterances, its turns were changed since it
    was made, or a recording is gone or another one than it was.
    """
    header = trace.header
    if header.generator in STREAMED:
        return library.chunks(_frame(trace, turn, rate), rate)
    utterance, _ = _utterance(trace, turn)
    sound = hesitating(utterance.pcm(rate), turn, rate)
    degraded = Degradation.of(header.params).applied(sound, rate, header.seed, turn.session, turn.turn)
    return library.chunks(degraded, rate)


def event_pcm(trace: Trace, turn: Turn, rate: int = 16_000) -> Iterator[bytes]:
    """Return the sound of the turn's event, in the form of `pcm_for`; for an event that takes the floor, the next
    turn.

    UserError as there, and for a turn without an event.
    """
    if turn.microphone.event is None:
        raise UserError(f"session {turn.session} turn {turn.turn} has no event; only turns with one sound so.")
    if turn.microphone.event in TAKES_FLOOR:
        return pcm_for(trace, _next(trace, turn), rate)
    utterance, utterances = _utterance(trace, turn)
    header = trace.header
    return library.chunks(event_sound(turn, utterance, utterances, header.params, header.seed, rate), rate)


def _next(trace: Trace, turn: Turn) -> Turn:
    for session in trace.sessions:
        if session.id == turn.session and turn.turn + 1 < len(session.turns):
            return session.turns[turn.turn + 1]
    raise UserError(
        f"session {turn.session} turn {turn.turn} is the last, so nothing follows its {turn.microphone.event}; "
        "make the trace again."
    )


def _utterance(trace: Trace, turn: Turn) -> tuple[AnyUtterance, tuple[AnyUtterance, ...]]:
    """Return the turn's utterance, and all utterances of the workload. UserError where the trace has none, or was
    changed."""
    header = trace.header
    utterances = known_utterances(tuple(header.notes), header.params.get("path"))
    if not utterances:
        raise UserError(f"workload {header.generator} says how long its users speak but not what; use workload speech.")
    place = int(places(stream(header.seed, STREAM), turn.session + 1, len(utterances))[-1])
    utterance = utterances[(place + turn.turn) % len(utterances)]
    if turn.audio_s is None or abs(turn.audio_s - utterance.seconds - (turn.microphone.pause_s or 0.0)) > 1e-6:
        pause = f" and its pause {turn.microphone.pause_s} s" if turn.microphone.pause_s else ""
        raise UserError(
            f"session {turn.session} turn {turn.turn}: audio_s is {turn.audio_s} but its utterance lasts "
            f"{utterance.seconds} s{pause}, so the trace was changed; make it again."
        )
    return utterance, utterances


def _frame(trace: Trace, turn: Turn, rate: int) -> np.ndarray:
    """int16, shape (samples of the frame,)."""
    header = trace.header
    sound = _streams(header.generator, json.dumps(header.params), header.seed, rate)[turn.session]
    assert turn.audio_s is not None, "frames are of audio"
    samples = round(turn.audio_s * rate)
    return sound.pcm(turn.turn * samples, samples)


@lru_cache(maxsize=8)
def _streams(generator: str, params: str, seed: int, rate: int) -> list[Stream]:
    return STREAMED[generator](json.loads(params), seed, rate)


@lru_cache(maxsize=8)
def known_utterances(notes: Sequence[str], folder: str | None) -> tuple[AnyUtterance, ...]:
    named = [match.groups() for match in map(_NOTE.fullmatch, notes) if match]
    if folder is None:
        made: list[Clip] = [*voice.sentences(), *synthetic_clips()]
        by_name = {clip.name: clip for clip in made}
        clips = {name: by_name.get(name, made[0]) for name, *_ in named}
    else:
        clips = {name: library.open_recording(Path(folder), name) for name in {name for name, *_ in named}}
    for name, digits, _ in named:
        if not clips[name].sha256.startswith(digits):
            raise UserError(f"{name} is not the sound that the trace was made with; make the trace again.")
    return tuple(_from_note(clips[name], spans) for name, _, spans in named)


def _from_note(clip: Clip, text: str) -> AnyUtterance:
    spans = [(float(begin_s), float(end_s)) for begin_s, end_s in (span.split("-") for span in text.split(","))]
    return Utterance(clip, *spans[0]) if len(spans) == 1 else Phrases(clip, tuple(spans))
