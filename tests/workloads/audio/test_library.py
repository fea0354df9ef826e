import struct
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import soundfile
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.builders import refused
from tests.workloads.audio.conftest import Record
from workloads.audio import decode, wav
from workloads.audio.decode import BadRecording
from workloads.audio.library import Held, Library, chunks, open_recording
from workloads.audio.synth import SyntheticClip
from workloads.errors import UserError

Damage = Callable[[Path], object]


@pytest.mark.parametrize(
    ("name", "rate", "channels", "encoding", "note"),
    [
        ("a.wav", 16_000, 1, "PCM_16", None),
        ("a.wav", 8_000, 1, "PCM_16", "8000 Hz resampled to 16000 Hz, which leaves the upper band empty"),
        ("a.wav", 48_000, 2, "PCM_16", "2 channels mixed to one"),
        ("a.wav", 16_000, 1, "PCM_24", "PCM_24 to 16 bit"),
        ("a.wav", 16_000, 1, "FLOAT", "FLOAT to 16 bit"),
        ("a.wav", 8_000, 1, "ULAW", "ULAW to 16 bit"),
        ("a.FLAC", 22_050, 1, "PCM_16", "22050 Hz resampled to 16000 Hz"),
        ("a.ogg", 16_000, 1, "VORBIS", "VORBIS to 16 bit"),
        ("deep/er/a b.mp3", 16_000, 1, "MPEG_LAYER_III", "MPEG_LAYER_III to 16 bit"),
    ],
)
def test_every_format_becomes_mono_16_bit_at_the_wanted_rate(
    record: Record, name: str, rate: int, channels: int, encoding: str, note: str | None
) -> None:
    path = record(name, rate, channels, encoding)
    library = Library.scan(path.parents[len(Path(name).parts) - 1])
    (clip,) = library.clips
    assert clip.name == name
    assert clip.seconds == pytest.approx(SyntheticClip(0).seconds, abs=0.06)  # codecs pad
    notes = library.notes(16_000)
    assert notes == [] if note is None else f"1 of 1 recordings: {note}" in notes
    for wanted in (8_000, 16_000, 24_000):
        pcm = clip.pcm(wanted)
        assert pcm.dtype == np.int16
        assert abs(len(pcm) - clip.seconds * wanted) <= 0.5
        assert 0.1 < np.abs(pcm).max() / 32768 < 0.4


def test_16_bit_recordings_come_through_unchanged(record: Record) -> None:
    clip = Library.scan(record("a.flac").parent).clips[0]
    assert np.array_equal(clip.pcm(16_000), SyntheticClip(0).pcm(16_000))
    assert not clip.pcm(16_000).flags.writeable


def noise(value: float, rate: int = 16_000, seconds: float = 1.0, encoding: str = "PCM_16") -> Damage:
    """Replace a recording by samples of one value."""
    sound = np.full(round(seconds * rate), float(value))
    return lambda path: soundfile.write(path, sound, rate, subtype=encoding, format="WAV")


def kept(share: float) -> Damage:
    return lambda path: path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])


@pytest.mark.parametrize(
    ("name", "damage", "counted", "sentence"),
    [
        ("bad.wav", kept(0), "empty", "is empty"),
        ("bad.wav", lambda path: path.write_bytes(bytes(range(256)) * 40), "corrupt", "is damaged or no audio file"),
        ("bad.wav", kept(0.5), "truncated", "is shorter than its header says"),
        ("bad.flac", kept(0.5), "corrupt", "is damaged or no audio file"),
        ("bad.wav", noise(0, seconds=0), "empty", "holds no sound"),
        ("bad.wav", noise(1e-4), "silent", "is silent (peak 0.000"),
        ("bad.wav", noise(np.nan, encoding="FLOAT"), "corrupt", "holds samples that are not numbers"),
        ("bad.wav", noise(0, 4_000, 3_601), "too long", "lasts 1.0 h, and at most 1 h is read; cut it"),
        ("bad.wav", noise(0, 500), "corrupt", "claims a rate of 500 Hz"),
    ],
)
def test_bad_recordings_are_named_or_counted(record: Record, name: str, damage: Damage, counted: str, sentence: str):
    record("good.wav")
    bad = record(name, index=1)
    damage(bad)
    with pytest.raises(BadRecording) as error:
        Library.scan(bad.parent)
    assert str(error.value).startswith(f"{bad}: {sentence}")
    assert str(error.value).endswith("or pass over such files (skip_bad=true or --skip-bad).")
    library = Library.scan(bad.parent, skip_bad=True)
    assert [clip.name for clip in library.clips] == ["good.wav"]
    assert library.skipped == Counter({counted: 1})
    assert library.notes(16_000) == [f"1 files passed over: 1 {counted}"]


def test_an_mp3_may_end_within_its_last_frame(record: Record) -> None:
    """As recordings of Common Voice do, a few ms before their headers say; half of one is still no recording."""
    path = record("a.mp3", encoding="MPEG_LAYER_III")
    content = path.read_bytes()
    path.write_bytes(content[:-1])
    with soundfile.SoundFile(path) as file:
        short = file.frames - len(file.read())
    assert 0 < short <= decode.MPEG_FRAME
    (clip,) = Library.scan(path.parent).clips
    assert clip.frames == open_recording(path.parent, "a.mp3").frames == len(clip.pcm(16_000))
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(BadRecording, match="is shorter than its header says"):
        Library.scan(path.parent)


@pytest.mark.parametrize(
    ("encoding", "channels", "found", "error"),
    [("PCM_16", 1, "PCM_16", 0), ("PCM_16", 2, "PCM_16", 0), ("ULAW", 1, "PCM_MULAW", 0.05)],
)
def test_sphere_files_are_read(tmp_path: Path, encoding: str, channels: int, found: str, error: float) -> None:
    """The format of NIST's and the LDC's corpora."""
    path, sound = tmp_path / "a.SPH", SyntheticClip(0).pcm(8_000)
    soundfile.write(path, np.stack([sound] * channels, 1), 8_000, format="NIST", subtype=encoding)
    (clip,) = Library.scan(tmp_path).clips
    assert (clip.format.rate, clip.format.channels, clip.frames) == (8_000, channels, len(sound))
    assert clip.format.encoding == found
    assert np.abs(clip.pcm(8_000).astype(float) - sound).max() <= error * np.abs(sound).max()


@pytest.mark.parametrize(
    ("kept_bytes", "sentence"), [(-2000, "is shorter than its header says"), (16, "claims a rate of 0 Hz")]
)
def test_a_part_of_a_sphere_file_is_refused(tmp_path: Path, kept_bytes: int, sentence: str) -> None:
    path = tmp_path / "a.SPH"
    soundfile.write(path, SyntheticClip(0).pcm(8_000), 8_000, format="NIST", subtype="PCM_16")
    path.write_bytes(path.read_bytes()[:kept_bytes])
    with pytest.raises(BadRecording, match=sentence):
        Library.scan(tmp_path)


LIST = b"LIST\x1a\0\0\0INFOISFT\x0e\0\0\0Lavf58.29.100\0"


SIZES = [(2**32 - 1, 2**32 - 1), (0x7FFFF024, 0x7FFFF000), (2**31 - 1, 2**31 - 37), (2**31, 2**31), (0, 0)]
SIZES += [(36, 4097), (4132, 4096), (0, 2**25), (0, None), (40, None)]


@pytest.mark.parametrize(("riff", "data"), SIZES)
@pytest.mark.parametrize("between", [b"", LIST])
def test_a_wav_is_as_long_as_its_file_whatever_its_header_says(
    record: Record, riff: int, data: int | None, between: bytes
) -> None:
    path = record("a.wav")
    content = path.read_bytes()
    at = content.index(b"data") + 8
    size = len(content) - at if data is None else data
    parts = (riff.to_bytes(4, "little"), content[8 : at - 8], between, size.to_bytes(4, "little"), content[at:])
    path.write_bytes(b"RIFF%b%b%bdata%b%b" % parts)
    assert Library.scan(path.parent).clips[0].seconds == SyntheticClip(0).seconds


@given(st.lists(st.integers(1, 300), max_size=30), st.sampled_from([None, 0, 2**32 - 1, 0x7FFFF000]), st.booleans())
def test_a_wav_that_comes_in_pieces_gives_its_samples(cuts: list[int], claimed: int | None, again: bool) -> None:
    samples = bytes(range(256)) * 4
    size = len(samples) if claimed is None else claimed
    form = struct.pack("<IHHIIHH", 16, 1, 1, 16_000, 32_000, 2, 16)
    whole = b"RIFF" + struct.pack("<I", size) + b"WAVEfmt " + form + b"data" + struct.pack("<I", size) + samples
    known = claimed is None
    whole += (whole if again else b"") + LIST if known else b""
    stream, got, at = wav.Stream(), b"", 0
    for cut in [*cuts, len(whole)]:
        got += stream.feed(whole[at : at + cut])
        at += cut
    assert got == samples * (2 if known and again else 1)
    assert stream.header is not None and stream.header.rate == 16_000


def test_a_flac_of_unknown_length_is_said_to_be_one(record: Record) -> None:
    """As `flac` writes it into a pipe: its header says 0 samples."""
    path = record("a.flac")
    content = bytearray(path.read_bytes())
    content[21] &= 0xF0
    content[22:26] = bytes(4)
    path.write_bytes(content)
    with pytest.raises(BadRecording, match="does not say how long it is; convert it to a file"):
        Library.scan(path.parent)


def test_a_folder_without_recordings_is_refused(tmp_path: Path, record: Record) -> None:
    with refused("is a file, not a folder; give a folder of recordings."):
        Library.scan(record("only.wav"))
    empty = tmp_path / "empty"
    (empty / ".hidden").mkdir(parents=True)
    (empty / "notes.txt").write_text("no sound")
    (empty / ".hidden" / "a.wav").write_bytes(b"x")
    with refused("has no recordings (looked for aif, "):
        Library.scan(empty)


def test_a_recording_that_changes_is_not_taken_for_the_old_one(record: Record) -> None:
    path = record("a.wav", index=83)  # whose waveform no other test of this process has decoded, and so holds
    clip = open_recording(path.parent, "a.wav")
    record("a.wav", index=3)
    with pytest.raises(UserError, match=r"a\.wav has changed since it was first read"):
        clip.pcm(16_000)
    path.unlink()
    with pytest.raises(UserError, match=r"a\.wav cannot be read: No such file"):
        clip.pcm(16_000)


def test_the_waveform_used_longest_ago_is_dropped_first() -> None:
    held, made = Held(limit=1000), []
    for key in ["a", "b", "a", "b", "c", "b", "a"]:  # b was used last when c comes, so a goes
        held.get((key, 16_000), lambda key=key: made.append(key) or np.zeros(400, np.int8))
    assert made == ["a", "b", "c", "a"]
    held.get(("long", 16_000), lambda: np.zeros(5000, np.int8))
    assert held.bytes == 5000


def test_chunks_last_20_ms_and_the_last_is_filled_up() -> None:
    pcm = np.arange(1000, dtype=np.int16)
    packets = list(chunks(pcm, 16_000))
    assert [len(packet) for packet in packets] == [640] * 4
    assert np.array_equal(np.frombuffer(b"".join(packets), "<i2"), np.pad(pcm, (0, 280)))
    assert [len(packet) for packet in chunks(pcm, 24_000)] == [960] * 3


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    suffix=st.sampled_from([".wav", ".flac", ".ogg", ".mp3", ".aiff", ".au", ".sph"]),
    changes=st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.booleans(), st.integers(0, 255)), max_size=4),
    share=st.floats(0, 1),
)
def test_damaged_recordings_are_read_or_refused(
    record: Record, suffix: str, changes: list[tuple[float, bool, int]], share: float
) -> None:
    encoding = {".ogg": "VORBIS", ".mp3": "MPEG_LAYER_III"}.get(suffix, "PCM_16")
    path = record(f"fuzz{suffix}", encoding=encoding, index=85)  # half a second
    content = bytearray(path.read_bytes())
    for place, in_header, value in changes:
        content[int(place * (100 if in_header else len(content)))] = value
    path.write_bytes(content[: round(share * len(content))])
    read_or_counted(path)


def read_or_counted(path: Path) -> None:
    """Either the file is used, or it is counted: nothing else may happen and nothing is lost."""
    try:
        library = Library.scan(path.parent, skip_bad=True)
    except UserError as error:
        assert "has no usable recording (1 " in str(error)
    else:
        assert len(library.clips) + library.skipped.total() == 1
        assert len(library.clips[0].pcm(16_000)) > 0
    finally:
        path.unlink()


SPHERE = b"NIST_1A\n   1024\nchannel_count -i 1\nsample_rate -i 8000\nsample_coding -s3 pcm\nend_head\n"


STARTS = (b"", b"RIFF\x00\x00\x00\x00WAVEfmt ", b"fLaC", b"OggS", SPHERE)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(suffix=st.sampled_from(sorted(decode.SUFFIXES)), start=st.sampled_from(STARTS), content=st.binary(max_size=400))
def test_random_bytes_are_refused_or_read_but_never_crash(tmp_path: Path, suffix: str, start: bytes, content: bytes):
    path = tmp_path / f"fuzz{suffix}"
    path.write_bytes(start + content)
    read_or_counted(path)
