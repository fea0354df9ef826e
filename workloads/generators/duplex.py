"""Spoken dialogues on an open microphone, in which people hesitate, interrupt and are not alone: workload `duplex`.

Each kind of event has draws of its own for whether, when and for how long, so more of one kind changes no other. A turn
has one event: where two kinds fall on one, that which takes the floor stays, then the first in the order of `EVENTS`.
"""

from dataclasses import dataclass

import numpy as np
from pydantic import Field

from workloads.audio import pauses, turntaking, voice
from workloads.audio.degrade import Degradation
from workloads.audio.phrases import Phrases, spoken_phrases, voice_phrases
from workloads.audio.turntaking import Published
from workloads.columns.duplex_events import EVENTS, TAKES_FLOOR, Event
from workloads.distributions import arrivals, speech
from workloads.generators import content
from workloads.generators.dialogues import number_turns
from workloads.generators.speech import RecordedParams, material
from workloads.seeds import Streams
from workloads.trace import Trace

REPAIRS = Published(0.1, "share of utterances with a self-repair: Nakatani and Hirschberg 1994, JASA 95:1603", True)
SNR_DB = Published(8.0, "most of 894 places where people listened had 2 to 14 dB: Wu et al. 2018, Ear Hear. 39", True)
WITHIN = (0.1, 0.9)
"""Part of a reply in which it is interrupted, as shares of its length. Both speakers have then had time to be heard.
[chosen]"""
ASIDE = (1.5, 0.6, 0.5, 6.0)
"""Median in s, log-spread and bounds of speech to or by other people. [chosen]"""
SOUND = (0.5, 0.5, 0.2, 3.0)
"""The same of a door, a cough, a cup. [chosen]"""
MURMUR = (turntaking.BACKCHANNEL_MEDIAN_S.value, turntaking.BACKCHANNEL_SIGMA.value, 0.15, 1.0)
LENGTHS = {"backchannel": MURMUR, "side_speech": ASIDE, "background_speech": ASIDE, "noise": SOUND}
PRECEDENCE: tuple[Event, ...] = tuple(sorted(EVENTS, key=lambda event: event not in TAKES_FLOOR))


def _share(default: float, description: str):
    return Field(default, ge=0, le=1, description=description)


class DuplexParams(RecordedParams):
    """Shares are of turns, and choices where no source is named: enough of each kind to measure it."""

    p: float = _share(0.2, "share of replies that the user interrupts, of those after which the call goes on")
    hesitations: float = _share(0.3, "share of turns with a silence of 0.3 to 2 s inside")
    corrections: float = _share(
        REPAIRS.value, "share of turns that the user takes up again, as of p; between people 0.1 have a self-repair"
    )
    backchannels: float = _share(
        0.2, "share of replies with an `mhm`; between people two thirds of longer turns (CANDOR)"
    )
    side_speech: float = _share(0.05, "share of replies during which the user speaks to somebody else")
    background_speech: float = _share(0.1, "share of replies during which somebody else is heard")
    noise: float = _share(0.1, "share of replies during which something falls, rings or rustles")
    side_db: float = Field(6.0, ge=-20, le=60, description="speech to somebody else: dB below the user's to the agent")
    background_db: float = Field(15.0, ge=-20, le=60, description="speech of others: dB below the user's")
    noise_db: float = Field(SNR_DB.value, ge=-20, le=60, description="noises: dB below the user's speech")


@dataclass(frozen=True)
class _Drawn:
    """Draws for events of one kind, one per turn: whether the event happens, its place as a share of the free time, and
    its length."""

    happens: np.ndarray
    place: np.ndarray
    length_s: np.ndarray


def duplex(params: DuplexParams, seed: int) -> Trace:
    """Multi-turn calls with hesitations and events; UserError names the first recording that cannot be used."""
    streams = Streams(seed)
    counts = streams("turns").geometric(1 / params.turns, params.sessions)
    session, turn = number_turns(counts)
    n = len(session)

    units, notes = material(params, spoken_phrases, voice_phrases)
    degradation = Degradation.of(params.model_dump())
    degradation.check()
    chosen = [units[i] for i in streams("utterance order").permutation(len(units))[:n]]
    which = (content.places(streams(content.STREAM), params.sessions, len(chosen))[session] + turn) % len(chosen)
    able = voice.pausing() if params.path is None else 1.0
    pause_after_s, pause_s = _hesitations(streams("hesitations"), params.hesitations / able, [chosen[i] for i in which])
    audio_s = np.round(np.array([unit.seconds for unit in chosen])[which] + np.nan_to_num(pause_s), 2)

    rates = speech.speech_rate(streams("reply_speech_rate"), params.sessions)
    reply_tokens = params.replies.sample(streams("replies"), n)
    replies_s = np.round(reply_tokens * rates[session], 6)
    gaps_s = params.gaps_s(streams, turntaking.gaps(streams("gaps"), n))

    followed = np.append(session[1:] == session[:-1], False)
    shares: dict[Event, float] = {
        "interruption": params.p,
        "backchannel": params.backchannels,
        "side_speech": params.side_speech,
        "background_speech": params.background_speech,
        "noise": params.noise,
        "correction": params.corrections,
    }
    drawn = {kind: _draw(streams(kind), kind, share, n) for kind, share in shares.items()}
    event, lost = np.full(n, "", dtype="U17"), 0
    event_after_s, event_s = np.full((2, n), np.nan)
    for kind in PRECEDENCE:
        due = drawn[kind].happens & (followed if kind in TAKES_FLOOR else True)
        here = due & (event == "")
        lost += int(np.sum(due & ~here))
        length_s = np.roll(audio_s, -1) if kind in TAKES_FLOOR else drawn[kind].length_s
        event[here], event_s[here] = kind, length_s[here]
        event_after_s[here] = _begins(kind, drawn[kind], replies_s)[here]
        notes.append(f"{kind}: {here.sum()} of {n} turns")
    if lost:
        notes.append(f"{lost} events more fell on turns that had one")
    notes.append(f"hesitation: {np.sum(pause_s > 0)} of {n} turns")
    if degradation:
        notes.append(f"turns heard {degradation}")
    notes.append(f"replies: {params.replies}")
    starts = arrivals.poisson(streams("arrivals"), params.rate, params.sessions)
    delays = speech.network_delays(streams("jitter"), params.network_ms, params.sessions)
    return Trace.made(
        "duplex",
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
            "think_s": np.where(turn > 0, gaps_s, np.nan),
            "network_s": delays[session],
            "pause_after_s": pause_after_s,
            "pause_s": pause_s,
            "event": event,
            "event_after_s": event_after_s,
            "event_s": event_s,
        },
        notes + [content.note(unit) for unit in chosen],
    )


def _hesitations(rng: np.random.Generator, share: float, utterances: list[Phrases]) -> tuple[np.ndarray, np.ndarray]:
    """Draw hesitations. Returns for each turn where it is held up and for how long, in s; NaN for a turn that is said
    in one breath."""
    u, where, long = rng.random((3, len(utterances)))
    lengths_s = pauses.hesitations(rng, long)
    places_s = [utterance.places() if held_up else [] for utterance, held_up in zip(utterances, u < share, strict=True)]
    return pauses.placed(u < share, where, lengths_s, places_s)


def _draw(rng: np.random.Generator, kind: Event, share: float, n: int) -> _Drawn:
    u, place = rng.random((2, n))
    if kind == "correction":  # as long as a hesitation is what the speaker took for the end of the turn
        return _Drawn(u < share, pauses.hesitations(rng, rng.random(n)), np.full(n, np.nan))
    if kind == "interruption":  # its words are the next turn
        return _Drawn(u < share, place, np.full(n, np.nan))
    median_s, sigma, shortest_s, longest_s = LENGTHS[kind]
    length_s = np.clip(median_s * np.exp(sigma * rng.standard_normal(n)), shortest_s, longest_s)
    return _Drawn(u < share, place, np.round(length_s, 2))


def _begins(kind: Event, drawn: _Drawn, replies_s: np.ndarray) -> np.ndarray:
    """Return begins in s: uniform within the reply, so that the event ends within it if there is room."""
    if kind == "correction":
        return drawn.place
    low, high = WITHIN
    if kind == "interruption":
        return replies_s * (low + (high - low) * drawn.place)
    return drawn.place * np.maximum(0.0, replies_s - drawn.length_s)
