"""Full-duplex streams: the continuous sound of a user's microphone, computed when it is read.

A stream is a schedule of parts (a piece of a clip, or silence), so 128 streams of any length are built at once and
hold no sound. A frame's content key is a function of its sound: sessions with the same sound get the same token ids
and share a prefix cache, others do not (identical synthetic chunks would share everything, random ids nothing).
"""

import hashlib
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from workloads.audio.library import CHUNK_S, Clip
from workloads.audio.library import chunks as packets
from workloads.errors import UserError
from workloads.seeds import stream

BLOCK_S = 1.0  # length of a read from the clips


@dataclass(frozen=True, slots=True)
class Part:
    """`length` samples of `clip` from sample `begin` on; clip None is silence."""

    clip: Clip | None
    begin: int
    length: int


class Stream:
    """Parts one after the other, from sample `phase` on, and again from the first when the last is over."""

    def __init__(self, parts: Sequence[Part], rate: int, phase: int = 0) -> None:
        self.parts, self.rate, self.phase = parts, rate, phase
        self._ends = list(accumulate(part.length for part in parts))

    def parts_of(self, begin: int, length: int) -> Iterator[Part]:
        """Yield the sound of `length` samples from sample `begin` of the stream on."""
        total = self._ends[-1]
        at = (begin + self.phase) % total
        index = bisect_right(self._ends, at)
        while length > 0:
            part = self.parts[index]
            skipped = at - (self._ends[index] - part.length)
            taken = min(part.length - skipped, length)
            yield Part(part.clip, part.begin + skipped if part.clip else 0, taken)
            length -= taken
            at = (at + taken) % total
            index = (index + 1) % len(self.parts)

    def pcm(self, begin: int, length: int) -> np.ndarray:
        """int16, shape (length,)."""
        pieces = [
            part.clip.pcm(self.rate)[part.begin : part.begin + part.length]
            if part.clip
            else np.zeros(part.length, np.int16)
            for part in self.parts_of(begin, length)
        ]
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)

    def chunks(self, seconds: float) -> Iterator[bytes]:
        """The first `seconds` as packets of 20 ms."""
        total, block = round(seconds * self.rate), round(BLOCK_S * self.rate)
        for begin in range(0, total, block):
            yield from packets(self.pcm(begin, min(block, total - begin)), self.rate)

    def content_key(self, frame: int, frame_s: float) -> int:
        """Return 53 bits for the sound of frame number `frame` of `frame_s` s: equal pieces of clips, equal key. 53
        bits are exact in a trace's column `content`."""
        samples = round(frame_s * self.rate)
        return self._key(frame * samples, samples)

    def _key(self, begin: int, length: int) -> int:
        text = "".join(
            f"{part.clip.sha256 if part.clip else 'silence'} {part.begin} {part.length} {self.rate}\n"
            for part in self.parts_of(begin, length)
        )
        return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 11


def continuous(clips: Sequence[Clip], sessions: int, rate: int, seed: int, staggered: bool = True) -> list[Stream]:
    """One endless stream per session: all clips in an order drawn from `seed`, without pause.

    Staggered, each session begins at its own place, evenly spread over the material and a whole number of packets
    from the next: all differ from their first frame on (Metronome: phase-staggered). Else all hear the same.
    """
    order = stream(seed, "duplex order").permutation(len(clips))
    parts = [Part(clips[i], 0, _length(clips[i], rate)) for i in order]
    packet = round(CHUNK_S * rate)
    places = sum(part.length for part in parts) // packet
    if staggered and places < sessions:
        raise UserError(
            f"{places * CHUNK_S:.2f} s of recordings give no {sessions} different streams; give more recordings."
        )
    step = places / sessions if staggered else 0.0
    return [Stream(parts, rate, packet * int(index * step)) for index in range(sessions)]


def content_keys(streams: Sequence[Stream], frames: int, frame_s: float) -> np.ndarray:
    """`content_key` of the first `frames` frames of streams of `continuous`, int64, shape (streams, frames).

    These streams play one schedule from different places, so each place is looked at once.
    """
    first = streams[0]
    samples, total = round(frame_s * first.rate), first._ends[-1]
    phases = np.array([stream.phase for stream in streams])[:, None]
    places, of_frame = np.unique((phases + samples * np.arange(frames)) % total, return_inverse=True)
    keys = [first._key(place - first.phase, samples) for place in places.tolist()]
    return np.array(keys, np.int64)[of_frame].reshape(len(streams), frames)


def _length(clip: Clip, rate: int) -> int:
    """Samples of a clip at `rate`, never more than it has."""
    return int(clip.seconds * rate)
