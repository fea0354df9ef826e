"""One audio file to one waveform: mono, 16-bit, at the rate the server wants; or the sentence why not.

Everything that libsndfile reads (wav, flac, ogg, opus, mp3, aiff, au); by FFmpeg G.722, the wide-band telephone codec,
and NIST SPHERE (sph), also compressed with Shorten as many corpora of telephone calls are.
"""

import io
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from workloads.audio import wav
from workloads.errors import UserError
from workloads.optional import optional

SUFFIXES = frozenset({".wav", ".flac", ".ogg", ".oga", ".opus", ".mp3", ".aif", ".aiff", ".au", ".g722", ".sph"})
SILENCE = 1e-3  # peak of full scale, -60 dB: no microphone in use is as quiet
LONGEST_S = wav.LONGEST_S  # choice: an hour at 16 kHz takes 115 MB, and a waveform is held whole while in use
RATES = (4_000, 384_000)
# How long an MP3 is, its header can only say in whole frames of so many samples less what the encoder padded; decoders
# differ by less than one (4 ms in recordings of Common Voice).
MPEG_FRAME = 1152
SPHERE_HEADER = 1024  # bytes; longer ones begin with the same fields
UNKNOWN = 2**62  # frames; libsndfile says as many of a FLAC that was written into a pipe
_WAV_LENGTH = re.compile(r"data : \d+ \(should be \d+\)")


_Samples = tuple[np.ndarray, "Format"]
"""float32 samples of shape (frames, channels), and the file's format."""


class BadRecording(UserError):
    """A file that gives no speech; `kind` is what --skip-bad counts it under."""

    def __init__(self, kind: str, path: Path, why: str) -> None:
        self.kind = kind
        super().__init__(f"{path}: {why}; remove the file, or pass over such files (skip_bad=true or --skip-bad).")


@dataclass(frozen=True, slots=True)
class Format:
    """The format of a file: samples per second and channel, channels, encoding as libsndfile names it."""

    rate: int
    channels: int
    encoding: str


@dataclass(frozen=True, slots=True)
class Waveform:
    """The mix of all channels, float32 in [-1, 1], shape (frames,), at the file's own rate."""

    samples: np.ndarray
    format: Format


def read(path: Path) -> Waveform:
    """The whole file, checked; BadRecording when it is corrupt, truncated, empty, silent or over an hour long."""
    try:
        if path.stat().st_size == 0:
            raise BadRecording("empty", path, "is empty")
        read = {".g722": _read_g722, ".sph": _read_sphere}.get(path.suffix.lower(), _read_sndfile)
        samples, format = read(path)
    except OSError as error:
        raise BadRecording("unreadable", path, f"cannot be read ({error.strerror})") from None
    if len(samples) == 0:
        raise BadRecording("empty", path, "holds no sound")
    mono = samples[:, 0] if samples.shape[1] == 1 else samples.mean(axis=1)
    waveform = Waveform(mono, format)
    peak = np.abs(waveform.samples).max()
    if not np.isfinite(peak):
        raise BadRecording("corrupt", path, "holds samples that are not numbers")
    if peak < SILENCE:
        raise BadRecording("silent", path, f"is silent (peak {peak:.5f} of full scale)")
    return waveform


def pcm(waveform: Waveform, rate: int) -> np.ndarray:
    """`waveform` as int16 at `rate` samples/s, shape (round(frames * rate / own rate),), read-only."""
    samples, own_rate = waveform.samples, waveform.format.rate
    if own_rate != rate:
        wanted = pcm_length(len(samples), own_rate, rate)
        samples = optional("soxr", "audio").resample(samples, own_rate, rate)[:wanted]
        samples = np.pad(samples, (0, wanted - len(samples)))
    out = np.clip(np.rint(samples * 32768), -32768, 32767).astype(np.int16)
    out.flags.writeable = False
    return out


def pcm_length(frames: int, own_rate: int, rate: int) -> int:
    """Samples at `rate` of `frames` samples at `own_rate`, rounded to the nearest."""
    return (2 * frames * rate + own_rate) // (2 * own_rate)


def _read_sndfile(path: Path) -> _Samples:
    soundfile = optional("soundfile", "audio")
    try:
        with soundfile.SoundFile(_openable(path)) as file:
            format = Format(file.samplerate, file.channels, file.subtype)
            if file.frames > UNKNOWN:
                raise BadRecording(
                    "of unknown length", path, "does not say how long it is; convert it to a file, not into a pipe"
                )
            _check(format, file.frames, path)
            if _WAV_LENGTH.search(file.extra_info):
                raise BadRecording("truncated", path, "is shorter than its header says")
            samples = file.read(dtype="float32", always_2d=True)
            spare = MPEG_FRAME if format.encoding.startswith("MPEG") else 0
            if len(samples) + spare < file.frames:
                raise BadRecording("truncated", path, "is shorter than its header says")
    except (soundfile.SoundFileError, ValueError, MemoryError) as error:
        if isinstance(error, BadRecording):
            raise
        raise BadRecording("corrupt", path, "is damaged or no audio file") from None
    return samples, format


def _openable(path: Path) -> Path | io.BytesIO:
    """Return the file, or its content with a corrected header if the length in its own is wrong."""
    with path.open("rb") as file:
        if not wav.begins(file.read(12)) or path.stat().st_size > wav.LARGEST:
            return path
    content = wav.corrected(path.read_bytes())
    return path if content is None else io.BytesIO(content)


def _read_g722(path: Path) -> _Samples:
    """Any bytes are G.722: it has no header."""
    format = Format(16_000, 1, "G722")
    _check(format, 2 * path.stat().st_size, path)  # two samples a byte
    decoder = optional("G722", "audio").G722(format.rate, 64_000)
    samples = np.array(decoder.decode(path.read_bytes()), np.int16)
    return (samples / np.float32(32768)).astype(np.float32)[:, np.newaxis], format


def _read_sphere(path: Path) -> _Samples:
    """The header is text: of its fields libsndfile and FFmpeg both overlook how many samples there should be."""
    with path.open("rb") as file:
        header = dict(re.findall(rb"^(sample_count|sample_rate) -i (\d+)", file.read(SPHERE_HEADER), re.MULTILINE))
    frames = int(header.get(b"sample_count", 0))
    _check(Format(int(header.get(b"sample_rate", 0)), 1, "SPHERE"), frames, path)
    samples, format = _read_ffmpeg(path, "nistsphere")
    if len(samples) < frames:
        raise BadRecording("truncated", path, "is shorter than its header says")
    return samples, format


def _read_ffmpeg(path: Path, container_format: str) -> _Samples:
    av = optional("av", "audio")
    try:
        with av.open(str(path), format=container_format) as container:
            stream = container.streams.audio[0]
            if stream.codec_context is None:
                raise ValueError("FFmpeg has no decoder")
            codec = stream.codec_context.name
            planes = av.AudioResampler(format="fltp")
            frames = [*container.decode(stream), None]
            blocks = [block.to_ndarray() for frame in frames for block in planes.resample(frame)]
            encoding = "PCM_16" if codec.startswith("pcm_s16") else codec.removeprefix("adpcm_").upper()
            format = Format(stream.rate, stream.channels, encoding)
    except (av.error.FFmpegError, ValueError, IndexError, MemoryError):
        raise BadRecording("corrupt", path, "is damaged or no audio file") from None
    samples = np.concatenate(blocks, axis=1) if blocks else np.zeros((1, 0), np.float32)
    return samples.T, format


def _check(format: Format, frames: int, path: Path) -> None:
    if not RATES[0] <= format.rate <= RATES[1]:
        raise BadRecording("corrupt", path, f"claims a rate of {format.rate} Hz")
    if frames > LONGEST_S * format.rate:
        hours = frames / format.rate / 3600
        raise BadRecording("too long", path, f"lasts {hours:.1f} h, and at most 1 h is read; cut it")
