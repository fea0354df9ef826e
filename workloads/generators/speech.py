"""Spoken dialogues whose turns are recordings, or sentences of the voice: workload `speech`."""

from collections.abc import Callable
from pathlib import Path
from typing import Literal, TypeVar

import numpy as np
from pydantic import Field

from workloads.audio import turntaking, voice
from workloads.audio.decode import BadRecording
from workloads.audio.degrade import Codec, Degradation
from workloads.audio.library import Clip, Library, Recording
from workloads.audio.pauses import BREATH_CLIP_S, BREATH_S, BREATHS, breaths, placed
from workloads.audio.phrases import Phrases
from workloads.audio.utterances import Utterance, utterances
from workloads.audio.voice import Sentence
from workloads.distributions import arrivals, speech
from workloads.generators import content
from workloads.generators.dialogues import DialogueParams, number_turns
from workloads.seeds import Streams
from workloads.trace import Trace

SpeechUnit = TypeVar("SpeechUnit", Utterance, Phrases)
RATE = 16_000  # of which notes on conversions speak: that of Qwen3-Omni's and most audio encoders
REPLY_SAMPLE = 65_536  # lengths from which the cut of a barge-in is drawn


class RecordedParams(DialogueParams):
    """Parameters of calls with recorded speech. They arrive as a Poisson process; the client bounds the concurrent
    calls."""

    think_s: float | None = Field(
        None,
        ge=0,
        le=30,
        description="median pause between a reply and the user's next turn, s; default: 0.2, as between people",
    )
    path: Path | None = Field(None, description="folder of recordings; without one, a synthesized voice")
    skip_bad: bool = Field(False, description="pass over unusable recordings and count them")
    reverb_s: float | None = Field(
        None, ge=0.05, le=5, description="far field: heard in a room where sound falls by 60 dB in this time, s"
    )
    snr_db: float | None = Field(
        None, ge=-20, le=60, description="heard over noise, which is this much below the speech, dB"
    )
    codec: Codec | None = Field(None, description="heard through a telephone: its band, and mu-law (g711)")

    def gaps_s(self, streams: Streams, as_people: np.ndarray) -> np.ndarray:
        """Return the pauses that `think_s` asks for, else `as_people`; s, shape (n,)."""
        if self.think_s is None:
            return as_people
        return speech.think_times(streams("think"), self.think_s, len(as_people))


class SpeechParams(RecordedParams):
    cut: Literal["natural", "truncate"] = Field(
        "natural",
        description="a barge-in drawn beyond the reply's end misses (natural), or is drawn within it (truncate)",
    )
    pauses: float = Field(
        BREATHS.value,
        ge=0,
        le=1,
        description="share of turns with a silence of 0.2 to 1 s inside, if a voice speaks; it can pause in two thirds",
    )
    pause_s: float = Field(
        BREATH_S.value, ge=BREATH_CLIP_S[0], le=BREATH_CLIP_S[1], description="median of these silences, s"
    )
    overlap: float = Field(
        0.0, ge=0, le=1, description="share of turns begun just before the reply ends; between people 0.4"
    )


def speech_sessions(params: SpeechParams, seed: int) -> Trace:
    """Multi-turn calls of recorded utterances; UserError names the first recording that cannot be used."""
    streams = Streams(seed)
    counts = streams("turns").geometric(1 / params.turns, params.sessions)
    session, turn = number_turns(counts)
    n = len(session)

    units, notes = material(params, utterances, lambda clip: [Utterance(clip, 0.0, clip.seconds)])
    degradation = Degradation.of(params.model_dump())
    degradation.check()
    order = streams("utterance order").permutation(len(units))[:n]
    chosen = [units[i] for i in order]
    place = content.places(streams(content.STREAM), params.sessions, len(chosen))
    which = (place[session] + turn) % len(chosen)
    pause_after_s, pause_s = _pauses(streams("pauses"), params, [chosen[i].clip for i in which])
    audio_s = np.round(np.array([unit.seconds for unit in chosen])[which] + np.nan_to_num(pause_s), 2)

    model = params.replies
    rates = speech.speech_rate(streams("reply_speech_rate"), params.sessions)
    reply_tokens = model.sample(streams("replies"), n)
    replies_s = reply_tokens * rates[session]
    rng = streams("barge_in")
    sample_s = model.sample(rng, REPLY_SAMPLE) * speech.speech_rate(rng, REPLY_SAMPLE)
    cuts = turntaking.cuts(rng, params.p, replies_s, sample_s, params.cut)
    offsets = turntaking.offsets(streams("offsets"), n, params.overlap)
    offsets = np.where(offsets < 0, offsets, params.gaps_s(streams, offsets))
    early = np.isnan(cuts) & (offsets < 0) & (-offsets < replies_s)

    if params.path is None:
        notes.append(f"pause: {np.sum(pause_s > 0)} of {n} turns")
    if degradation:
        notes.append(f"heard {degradation}")
    notes.append(f"replies: {model}")
    notes.append(_rates(cuts, replies_s, params.cut))
    if params.overlap > 0:
        notes.append(f"{np.mean(early):.1%} of turns begun up to {-offsets.min():.2f} s before the reply's end")
    starts = arrivals.poisson(streams("arrivals"), params.rate, params.sessions)
    delays = speech.network_delays(streams("jitter"), params.network_ms, params.sessions)
    return Trace.made(
        "speech",
        params,
        streams,
        {
            "session": session,
            "turn": turn,
            "arrival_s": np.where(turn == 0, starts[session], np.nan),
            "modality": "audio",
            "input_tokens": speech.audio_tokens(audio_s),
            "audio_s": audio_s,
            "output_tokens": reply_tokens,
            "reply_audio_s": replies_s,
            "think_s": np.where(turn > 0, np.maximum(0, np.roll(offsets, 1)), np.nan),
            "barge_in_after_s": np.where(early, replies_s + offsets, cuts),
            "network_s": delays[session],
            "pause_after_s": pause_after_s,
            "pause_s": pause_s,
        },
        notes + [content.note(utterance) for utterance in chosen],
    )


def _pauses(rng: np.random.Generator, params: SpeechParams, clips: list[Clip]) -> tuple[np.ndarray, np.ndarray]:
    """Draw silences within turns of the voice. Returns for each turn where it pauses and for how long, in s; NaN for a
    turn that is said in one breath."""
    u, where = rng.random((2, len(clips)))
    lengths_s = breaths(rng, params.pause_s, len(clips))
    places_s = [list(clip.places_s) if isinstance(clip, Sentence) else [] for clip in clips]
    return placed(u * voice.pausing() < params.pauses, where, lengths_s, places_s)


def material(
    params: RecordedParams,
    cut: Callable[[Recording], list[SpeechUnit]],
    of_sentence: Callable[[Sentence], list[SpeechUnit]],
) -> tuple[list[SpeechUnit], list[str]]:
    """Return all utterances and a note about them: `cut` out of recordings, or `of_sentence`, by the voice."""
    if params.path is None:
        return [unit for sentence in voice.sentences() for unit in of_sentence(sentence)], [voice.note()]
    library = Library.scan(params.path, params.skip_bad)
    units: list[SpeechUnit] = []
    for clip in library.clips:
        try:
            units += cut(clip)
        except BadRecording as bad:
            if not params.skip_bad:
                raise
            library.skipped[bad.kind] += 1
    if not units:
        raise library.unusable()
    total_s = sum(utterance.seconds for utterance in units)
    summary = f"speech: {len(units)} utterances, {total_s:.0f} s, from {len(library.clips)} recordings"
    return units, [summary, *library.notes(RATE)]


def _rates(cuts: np.ndarray, replies_s: np.ndarray, policy: str) -> str:
    """Return the number of drawn barge-ins, and of barge-ins that can come in time."""
    drawn, timely = np.mean(~np.isnan(cuts)), np.mean(cuts < replies_s)
    return (
        f"barge-ins, cut policy {policy}: drawn in {drawn:.1%} of turns, before the reply's end in {timely:.1%}, "
        f"missed in {drawn - timely:.1%}"
    )
