"""A user's speech in one turn: cut out of recordings, from its first sound to its last."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from workloads.audio.decode import BadRecording
from workloads.audio.library import Clip, Recording
from workloads.audio.vad import Segment, segments

PAUSE_S = 1.0  # choice: a longer silence ends the turn; servers that listen for the end wait 0.5 to 1 s
LONGEST_S = 30.0  # choice, as the longest LibriSpeech utterances: about 30 s


@dataclass(frozen=True, slots=True)
class Utterance:
    """Seconds `begin_s` to `end_s` of a clip, on whole hundredths, so that they are whole samples at any rate."""

    clip: Clip
    begin_s: float
    end_s: float

    @property
    def spans(self) -> tuple[tuple[float, float], ...]:
        return ((self.begin_s, self.end_s),)

    @property
    def seconds(self) -> float:
        return round(self.end_s - self.begin_s, 2)

    def pcm(self, rate: int) -> np.ndarray:
        """int16 at `rate` samples/s, shape (seconds * rate,), read-only."""
        return self.clip.pcm(rate)[round(self.begin_s * rate) : round(self.end_s * rate)]


def utterances(recording: Recording) -> list[Utterance]:
    """The turns in a recording by webrtcvad: cut at pauses over 1 s and before 30 s; BadRecording without speech.

    The end is about 80 ms late (P50 over 36 recordings; the detector's hang-over), so a latency counted from
    the end of an utterance comes out that much too short.
    """
    spoken = segments(recording)
    if not spoken:
        raise BadRecording("without speech", recording.path, "holds no speech that a detector finds")
    last = np.floor(recording.seconds * 100) / 100
    return [
        Utterance(recording, round(turn.start_s, 2), min(round(turn.end_s, 2), float(last)))
        for turn in turns_of(spoken)
    ]


def turns_of(spoken: Sequence[Segment]) -> list[Segment]:
    turns: list[Segment] = []
    for segment in spoken:
        pieces = int(np.ceil((segment.end_s - segment.start_s) / LONGEST_S))
        cuts = np.linspace(segment.start_s, segment.end_s, pieces + 1)
        for start_s, end_s in zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True):
            begin = turns[-1] if turns else None
            if begin and start_s - begin.end_s <= PAUSE_S and end_s - begin.start_s <= LONGEST_S:
                turns[-1] = Segment(begin.start_s, end_s)
            else:
                turns.append(Segment(start_s, end_s))
    return turns
