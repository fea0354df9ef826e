"""A user's speech in one turn of a call on an open microphone, without a silence that could end the turn.

Recorded speech has pauses without marks. A server that takes one for the end of a turn would be charged with a fault
at a place where the trace has none. So the stretches of speech in a recording are joined without the gaps between
them. A hesitation is then put in as silence of a drawn length, at a place between two of them.
"""

from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from workloads.audio.library import Clip, Recording
from workloads.audio.utterances import utterances
from workloads.audio.vad import SHORTEST_S, segments
from workloads.audio.voice import Sentence

EDGE_S = 0.3  # no hesitation this close to begin or end, about a word [chosen]
FRAME_S = 0.01
MEASURED_AT = 16_000  # samples/s at which a quiet place is looked for


@dataclass(frozen=True, slots=True)
class Phrases:
    """Stretches of a clip in s, on whole hundredths, said one right after the other; an `Utterance` of several."""

    clip: Clip
    spans: tuple[tuple[float, float], ...]

    @property
    def seconds(self) -> float:
        return round(sum(end - begin for begin, end in self.spans), 2)

    def pcm(self, rate: int) -> np.ndarray:
        """int16 at `rate` samples/s, shape (seconds * rate,)."""
        sound = self.clip.pcm(rate)
        return np.concatenate([sound[round(begin * rate) : round(end * rate)] for begin, end in self.spans])

    def places(self) -> list[float]:
        """Return the places in s where the speaker may hesitate: between two stretches, else those of the voice's
        sentence, else the quietest place of the recording; none in a word or two."""
        ends = list(accumulate(end - begin for begin, end in self.spans))
        inner = self._kept(ends[:-1])
        if inner:
            return inner
        if isinstance(self.clip, Sentence):
            return self._kept(list(self.clip.places_s))
        first, last = round(EDGE_S / FRAME_S), round((self.seconds - EDGE_S) / FRAME_S)
        if last <= first:
            return []
        size = round(FRAME_S * MEASURED_AT)
        sound = self.pcm(MEASURED_AT).astype(np.float64)
        energy = np.sum(sound[: len(sound) // size * size].reshape(-1, size) ** 2, axis=1)
        return [round((first + int(np.argmin(energy[first : last + 1]))) * FRAME_S, 2)]

    def _kept(self, places_s: list[float]) -> list[float]:
        return [round(at_s, 2) for at_s in places_s if EDGE_S <= round(at_s, 2) <= self.seconds - EDGE_S]


def spoken_phrases(recording: Recording) -> list[Phrases]:
    """Return the turns in a recording, as `utterances` finds them, each without its silences; BadRecording without
    speech.

    Begins and ends are those of the detector drawn in to where the sound is near its loudest (`vad`, energy), as the
    detector is 80 ms late at ends: an end of speech is known to 10 ms.
    """
    speech = _speech_of(recording)
    turns: list[Phrases] = []
    for turn in utterances(recording):
        spans = tuple(span for span in speech if turn.begin_s <= span[0] and span[1] <= turn.end_s)
        turns.append(Phrases(recording, spans or ((turn.begin_s, turn.end_s),)))
    return turns


def voice_phrases(sentence: Sentence) -> list[Phrases]:
    """Return the sentence, which has no silences."""
    return [Phrases(sentence, ((0.0, sentence.seconds),))]


def _speech_of(recording: Recording) -> list[tuple[float, float]]:
    """Begin and end in s of the stretches in which both detectors hear speech, in order."""
    loud = segments(recording, "energy")
    both = [
        (round(max(one.start_s, other.start_s), 2), round(min(one.end_s, other.end_s), 2))
        for one in segments(recording)
        for other in loud
    ]
    return sorted(span for span in both if span[1] - span[0] >= SHORTEST_S)
