"""A folder of recordings as clips, decoded on demand and kept in a bounded store.

All sessions share one store of decoded waveforms, bounded in bytes: a thousand sessions hold no thousand waveforms.
"""

from __future__ import annotations

import hashlib
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from workloads.audio import decode
from workloads.audio.decode import BadRecording, Format
from workloads.errors import UserError

CHUNK_S = 0.02  # what a WebRTC or telephone client sends in one packet
HELD_BYTES = 128 * 2**20  # decoded waveforms at most: 70 minutes of speech at 16 kHz


class Clip(Protocol):
    """Sound of a known length: a recording, or synthetic speech."""

    @property
    def name(self) -> str:
        """Path below the library's folder, with `/`."""
        ...

    @property
    def sha256(self) -> str:
        """Identity of the clip, in 64 hexadecimal digits: equal sound has equal digits."""
        ...

    @property
    def seconds(self) -> float: ...

    def pcm(self, rate: int) -> np.ndarray:
        """The sound as int16 at `rate` samples/s, shape (about seconds * rate,), read-only."""
        ...


class Held:
    """The least recently used waveforms give way once more than `limit` bytes are held; the newest stays."""

    def __init__(self, limit: int = HELD_BYTES) -> None:
        self.limit = limit
        self.bytes = 0
        self._waveforms: OrderedDict[tuple[str, int], np.ndarray] = OrderedDict()

    def get(self, key: tuple[str, int], make: Callable[[], np.ndarray]) -> np.ndarray:
        """The waveform of `key` = (sha256, rate), made when it is not held."""
        if key in self._waveforms:
            self._waveforms.move_to_end(key)
            return self._waveforms[key]
        waveform = self._waveforms[key] = make()
        self.bytes += waveform.nbytes
        while self.bytes > self.limit and len(self._waveforms) > 1:
            self.bytes -= self._waveforms.popitem(last=False)[1].nbytes
        return waveform


held = Held()


@dataclass(frozen=True, slots=True)
class Recording:
    """A file that was read once in full and found to hold sound; a `Clip`."""

    name: str
    path: Path
    sha256: str
    frames: int
    format: Format

    @property
    def seconds(self) -> float:
        return self.frames / self.format.rate

    def pcm(self, rate: int) -> np.ndarray:
        return held.get((self.sha256, rate), lambda: self._decode(rate))

    def _decode(self, rate: int) -> np.ndarray:
        if _sha256(self.path) != self.sha256:
            raise UserError(f"{self.path} has changed since it was first read; make the trace again.")
        return decode.pcm(decode.read(self.path), rate)


@dataclass(frozen=True)
class Library:
    """The usable recordings of a folder in the order of their names, and the number of unusable ones by kind."""

    folder: Path
    clips: tuple[Recording, ...]
    skipped: Counter[str]

    @classmethod
    def scan(
        cls, folder: str | Path, skip_bad: bool = False, progress: Callable[[int, int], None] = lambda done, total: None
    ) -> Library:
        """Read every recording below `folder` once, to check it and to know its length.

        UserError names the first bad file; with `skip_bad` they are counted by kind and passed over. `progress(done,
        total)` is called after every file.
        """
        folder = Path(folder)
        clips: list[Recording] = []
        skipped: Counter[str] = Counter()
        names = audio_files(folder)
        for done, name in enumerate(names, 1):
            try:
                clips.append(open_recording(folder, name))
            except BadRecording as bad:
                if not skip_bad:
                    raise
                skipped[bad.kind] += 1
            progress(done, len(names))
        library = cls(folder, tuple(clips), skipped)
        if not clips:
            raise library.unusable()
        return library

    def unusable(self) -> UserError:
        """Return the error for a folder without any usable recording."""
        return UserError(f"{self.folder} has no usable recording ({counted(self.skipped)}); give another folder.")

    @property
    def seconds(self) -> float:
        """Length of all clips together."""
        return sum(clip.seconds for clip in self.clips)

    def notes(self, rate: int) -> list[str]:
        """Return the changes made to the recordings to have them as 16-bit mono at `rate`, for a record's header."""
        changes = Counter[str]()
        for format in (clip.format for clip in self.clips):
            if format.channels > 1:
                changes[f"{format.channels} channels mixed to one"] += 1
            if format.rate != rate:
                narrow = ", which leaves the upper band empty" if format.rate < rate else ""
                changes[f"{format.rate} Hz resampled to {rate} Hz{narrow}"] += 1
            if format.encoding != "PCM_16":
                changes[f"{format.encoding} to 16 bit"] += 1
        notes = [f"{n} of {len(self.clips)} recordings: {change}" for change, n in sorted(changes.items())]
        if self.skipped:
            notes.append(f"{self.skipped.total()} files passed over: {counted(self.skipped)}")
        return notes


def audio_files(folder: Path) -> list[str]:
    """Return the names below `folder` of the files with a known audio suffix, sorted; UserError without any."""
    try:
        if not folder.is_dir():
            what = "is a file, not a folder" if folder.exists() else "does not exist"
            raise UserError(f"{folder} {what}; give a folder of recordings.")
        paths = [path for path in folder.rglob("*") if path.suffix.lower() in decode.SUFFIXES and path.is_file()]
    except OSError as error:
        raise UserError(f"{folder} cannot be read: {error.strerror}; give a readable folder.") from None
    relative = [path.relative_to(folder) for path in paths]
    hidden = [any(part.startswith(".") for part in path.parts) for path in relative]
    names = sorted(path.as_posix() for path, hide in zip(relative, hidden, strict=True) if not hide)
    if not names:
        suffixes = ", ".join(sorted(suffix[1:] for suffix in decode.SUFFIXES))
        raise UserError(f"{folder} has no recordings (looked for {suffixes}); give a folder of recordings.")
    return names


def open_recording(folder: Path, name: str) -> Recording:
    """Read `name` below `folder` once; BadRecording when it gives no sound."""
    path = folder / name
    waveform = decode.read(path)
    return Recording(name, path, _sha256(path), len(waveform.samples), waveform.format)


def chunks(pcm: np.ndarray, rate: int) -> Iterator[bytes]:
    """`pcm`, int16 of shape (samples,), as little-endian packets of 20 ms; the last is filled up with silence."""
    size = round(CHUNK_S * rate)
    whole = np.pad(pcm, (0, -len(pcm) % size)).astype("<i2", copy=False).tobytes()
    for begin in range(0, len(whole), 2 * size):
        yield whole[begin : begin + 2 * size]


def counted(kinds: Counter[str]) -> str:
    """ "2 corrupt, 1 silent"."""
    return ", ".join(f"{n} {kind}" for kind, n in kinds.most_common())


def _sha256(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}; bring it back, or make the trace again.") from None
