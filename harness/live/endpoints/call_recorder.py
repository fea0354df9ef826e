"""Both sides of a call as a stereo file: left what the microphone heard, right what the loudspeaker played.

Sound stands at its time since the call began, so the sides are aligned as somebody who was there would have heard them.
"""

from pathlib import Path

import numpy as np

RATE = 24_000
"""Samples/s of a file: of the sides the higher rate."""
LONGEST_S = 600.0
"""[chosen] Longest sound of one file, s. Later sound is not kept."""
MINUTES = 30.0
"""[chosen] Minutes of sound in all files of a load generator together."""


class CallRecorder:
    """Records one call from `origin_s` on, at most `longest_s` of it; `rate`: samples/s of the microphone."""

    def __init__(self, origin_s: float, rate: int, longest_s: float = LONGEST_S) -> None:
        self._origin_s, self._rate, self._longest_s = origin_s, rate, longest_s
        self._microphone: list[tuple[float, bytes]] = []
        self._played: dict[int, list[tuple[float, float, bytes]]] = {}

    def heard(self, begin_s: float, pcm: bytes) -> None:
        """Record what the microphone heard from `begin_s` on, on the loop's clock."""
        if begin_s - self._origin_s < self._longest_s:
            self._microphone.append((begin_s, pcm))

    def play(self, reply: int, begin_s: float, audio_s: float, pcm: bytes) -> None:
        """Record what the loudspeaker is going to play."""
        if begin_s - self._origin_s < self._longest_s:
            self._played.setdefault(reply, []).append((begin_s, audio_s, pcm))

    def stop(self, reply: int, at_s: float) -> None:
        """Drop the rest of that reply."""
        kept = []
        for begin_s, audio_s, pcm in self._played.get(reply, ()):
            left_s = min(audio_s, at_s - begin_s)
            if left_s > 0:
                kept.append((begin_s, left_s, pcm[: 2 * round(len(pcm) / 2 * left_s / audio_s)]))
        self._played[reply] = kept

    def samples(self) -> np.ndarray:
        """Return the samples, shape (samples, 2), int16."""
        left = self._side([(begin_s, self._rate, pcm) for begin_s, pcm in self._microphone])
        packets = [packet for reply in self._played.values() for packet in reply if packet[2]]
        right = self._side([(begin_s, len(pcm) / 2 / audio_s, pcm) for begin_s, audio_s, pcm in sorted(packets)])
        stereo = np.zeros((max(len(left), len(right)), 2), np.int16)
        stereo[: len(left), 0], stereo[: len(right), 1] = left, right
        return stereo[: round(self._longest_s * RATE)]

    def save(self, path: Path) -> None:
        from workloads.optional import optional

        optional("soundfile", "audio").write(path, self.samples(), RATE, format="FLAC")

    def _side(self, pieces: list[tuple[float, float, bytes]]) -> np.ndarray:
        """Return one side. Pieces that follow each other without a gap are resampled as one."""
        runs: list[tuple[float, float, list[bytes]]] = []
        end_s = -np.inf
        for begin_s, rate, pcm in pieces:
            if abs(begin_s - end_s) > 1e-4 or runs[-1][1] != rate:
                runs.append((begin_s, rate, []))
            runs[-1][2].append(pcm)
            end_s = begin_s + len(pcm) / 2 / rate
        placed = [(begin_s, _resampled(b"".join(pcm), rate)) for begin_s, rate, pcm in runs]
        starts = [max(0, round((begin_s - self._origin_s) * RATE)) for begin_s, _ in placed]
        whole = np.zeros(
            max((at + len(sound) for at, (_, sound) in zip(starts, placed, strict=True)), default=0), np.int16
        )
        for at, (_, sound) in zip(starts, placed, strict=True):
            whole[at : at + len(sound)] = sound
        return whole


def _resampled(pcm: bytes, rate: float) -> np.ndarray:
    from workloads.optional import optional

    samples = np.frombuffer(pcm, "<i2")
    return samples if round(rate) == RATE else optional("soxr", "audio").resample(samples, rate, RATE)
