"""The voice of simulated callers where no recordings are given: sentences that a synthesizer spoke once, as Opus files.

Speakers, texts and places for a pause are in voice.json; `python -m tools.voice` makes the files again. Kokoro-82M
and its speakers are under Apache-2.0, without a condition on what they say. `docs/speech.md` compares voices by what
detectors of speech and of the end of a turn make of them. Only the sound needs soundfile and soxr.
"""

import json
from dataclasses import dataclass
from functools import cache
from itertools import cycle
from pathlib import Path

import numpy as np

from workloads.audio.decode import Format
from workloads.audio.library import Recording

NAME = "Kokoro-82M"
FOLDER = Path(__file__).with_name("sentences")
FORMAT = Format(24_000, 1, "OPUS")


@dataclass(frozen=True, slots=True)
class Sentence(Recording):
    """A sentence of the voice; a `Clip`.

    text      what is said
    speaker   of the synthesizer
    places_s  ends of words after which a silence leaves the sentence unfinished, in s: Smart Turn v3.2 gives less than
              0.2 that the turn is over
    """

    text: str = ""
    speaker: str = ""
    places_s: tuple[float, ...] = ()


@cache
def sentences() -> tuple[Sentence, ...]:
    """Return the whole stock, in the order of names."""
    index = json.loads((FOLDER / "voice.json").read_text())
    return tuple(
        Sentence(
            name=f"{NAME} {row['file'].removesuffix('.opus')}",
            path=FOLDER / row["file"],
            sha256=row["sha256"],
            frames=row["frames"],
            format=FORMAT,
            text=row["text"],
            speaker=row["speaker"],
            places_s=tuple(row["places_s"]),
        )
        for row in index
    )


def note() -> str:
    """Return what a trace's header says of the voice."""
    speakers = len({sentence.speaker for sentence in sentences()})
    return f"synthetic speech: voice {NAME}, {len(sentences())} sentences of {speakers} speakers"


def pausing() -> float:
    """Return the share of sentences that have a place for a pause."""
    return sum(bool(sentence.places_s) for sentence in sentences()) / len(sentences())


def spoken(seconds: float, rate: int) -> np.ndarray:
    """Return speech of that length that ends where a sentence does, int16 of shape (round(seconds * rate),).

    It is the end of the shortest sentence that is long enough, or of several one after the other.
    """
    wanted = round(seconds * rate)
    long = [sentence for sentence in sentences() if sentence.seconds >= seconds]
    chosen = [min(long, key=lambda sentence: sentence.seconds)] if long else sentences()
    pieces, got = [], 0
    for sentence in cycle(chosen):
        if got >= wanted:
            break
        pieces.append(sentence.pcm(rate))
        got += len(pieces[-1])
    return np.concatenate(pieces)[got - wanted :]
