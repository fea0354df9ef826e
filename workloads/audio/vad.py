"""Voice activity in a waveform: two detectors, and the energy bound that they are tested against.

webrtcvad is the light default; silero is the reference and needs the extra `silero`; only its ONNX file is used, and
torch is not imported. On 36 recordings from four sources, first onsets lie within 100 ms of the energy bound in 94 %
(webrtc) and 89 % (silero, which answers every 32 ms); for any bound from 20 to 35 dB webrtc stays at 91 % or more.
"""

from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import numpy as np

from workloads.audio.library import Clip
from workloads.optional import missing, optional

RATE = 16_000
Method = Literal["webrtc", "silero", "energy"]
JOINED_S = 0.2  # choice: a shorter silence is a stop consonant or a breath, inside one segment of speech
SHORTEST_S = 0.06  # choice: a shorter burst is a click
SETTLING = 5  # webrtcvad frames of 20 ms: its noise estimate takes any sound for speech in the first 80 ms
AGGRESSIVENESS = 3  # of webrtcvad, 0 to 3: fewest false alarms outside speech (0.9 % against 7.1 % at 1)
BELOW_SPEECH_DB, ABOVE_NOISE_DB = 25, 10  # choice; of the energy bound
SPEECH_PROBABILITY = 0.5  # silero's own default threshold


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of speech, in s from the start of the clip."""

    start_s: float
    end_s: float


def segments(clip: Clip, method: Method = "webrtc") -> list[Segment]:
    """The stretches of speech in `clip`, in order, apart by at least 0.2 s; UserError when a package is missing."""
    return segments_of(clip.pcm(RATE), method)


def segments_of(pcm: np.ndarray, method: Method = "webrtc") -> list[Segment]:
    """Returns `segments` of int16 samples at 16 kHz, shape (samples,)."""
    flags, frame_s = {"webrtc": _webrtc, "silero": _silero, "energy": _energy}[method](pcm)
    return _joined(flags, frame_s, len(pcm) / RATE)


def _webrtc(pcm: np.ndarray) -> tuple[np.ndarray, float]:
    detector = optional("webrtcvad", "audio").Vad(AGGRESSIVENESS)
    frames = _frames(pcm, 320).astype("<i2", copy=False)
    for frame in frames[:SETTLING][::-1]:  # heard twice, first backwards
        detector.is_speech(frame.tobytes(), RATE)
    return np.array([detector.is_speech(frame.tobytes(), RATE) for frame in frames], bool), 0.02


def _energy(pcm: np.ndarray) -> tuple[np.ndarray, float]:
    """Frames of 10 ms near the level of the loud ones (P95) and, where the pauses are noisy, above these (P5)."""
    frames = _frames(pcm, 160).astype(np.float64)
    level = 10 * np.log10(np.mean(frames**2, axis=1) + 1)
    noise, loud = np.percentile(level, (5, 95))
    return level > max(loud - BELOW_SPEECH_DB, min(noise + ABOVE_NOISE_DB, loud - ABOVE_NOISE_DB)), 0.01


def _silero(pcm: np.ndarray) -> tuple[np.ndarray, float]:
    """Windows of 512 samples, each with the 64 before it, through the recurrent network."""
    network = _silero_network()
    samples = np.pad(pcm, (64, -len(pcm) % 512)).astype(np.float32) / 32768
    state, rate = np.zeros((2, 1, 128), np.float32), np.array(RATE, np.int64)
    flags = []
    for begin in range(0, len(samples) - 64, 512):
        window = samples[None, begin : begin + 576]
        speech, state = network.run(None, {"input": window, "state": state, "sr": rate})
        flags.append(speech.item() >= SPEECH_PROBABILITY)
    return np.array(flags, bool), 512 / RATE


@cache
def _silero_network() -> Any:
    onnxruntime = optional("onnxruntime", "silero")
    package = find_spec("silero_vad")
    if package is None or package.origin is None:
        raise missing("silero_vad", "silero")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    path = Path(package.origin).parent / "data" / "silero_vad.onnx"
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def _frames(pcm: np.ndarray, size: int) -> np.ndarray:
    return np.pad(pcm, (0, -len(pcm) % size)).reshape(-1, size)


def _joined(flags: np.ndarray, frame_s: float, seconds: float) -> list[Segment]:
    """Runs of flagged frames: silences under 0.2 s are filled, then bursts under 60 ms dropped."""
    edges = np.flatnonzero(np.diff(flags.astype(np.int8), prepend=0, append=0))
    starts, ends = edges[::2] * frame_s, np.minimum(edges[1::2] * frame_s, seconds)
    if len(starts) == 0:
        return []
    apart = starts[1:] - ends[:-1] >= JOINED_S
    starts, ends = starts[np.r_[True, apart]], ends[np.r_[apart, True]]
    long = ends - starts >= SHORTEST_S
    return [Segment(float(start), float(end)) for start, end in zip(starts[long], ends[long], strict=True)]
