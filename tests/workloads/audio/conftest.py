"""Recordings made up for a test, and the real ones where they stand beside the repository."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("soundfile", reason="needs the extra audio")
pytest.importorskip("soxr", reason="needs the extra audio")
pytest.importorskip("webrtcvad", reason="needs the extra audio")

SHARED_AUDIO = Path(__file__).parents[4] / "shared" / "data" / "audio"
Record = Callable[..., Path]


def known(value: float | None) -> float:
    assert value is not None
    return value


@pytest.fixture(scope="session", params=["made up", "real"] if SHARED_AUDIO.exists() else ["made up"])
def recordings(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of recordings of several kinds, some of them silent; also the real one where it is at hand."""
    return SHARED_AUDIO if request.param == "real" else write_recordings(tmp_path_factory.mktemp("audio"))


def write_recordings(folder: Path) -> Path:
    """24 recordings of synthetic speech, after and before a quiet noise of 0.2 to 0.8 s, and two silent ones."""
    import soundfile

    from workloads.audio.synth import SyntheticClip

    kinds = [("wav", 16_000, 1), ("flac", 16_000, 1), ("wav", 8_000, 1), ("flac", 48_000, 2), ("ogg", 24_000, 1)]
    for index in range(24):
        kind, rate, channels = kinds[index % len(kinds)]
        rng = np.random.default_rng(index)
        around = [rng.normal(0, 5, round(rng.uniform(0.2, 0.8) * rate)) for _ in range(2)]
        sound = np.concatenate([around[0], SyntheticClip(index).pcm(rate), around[1]]) / 32768
        path = folder / f"voice {index % 3}" / f"{index}.{kind}"
        path.parent.mkdir(exist_ok=True)
        soundfile.write(path, np.stack([sound] * channels, axis=1), rate)
    for name in ("a.wav", "b.flac"):
        soundfile.write(folder / name, np.zeros(16_000), 16_000)
    return folder


@pytest.fixture
def record(tmp_path: Path) -> Record:
    """Write speech-like sound to a file of a folder; gives its path."""

    def record(name: str, rate: int = 16_000, channels: int = 1, encoding: str = "PCM_16", index: int = 0) -> Path:
        import soundfile

        from workloads.audio.synth import SyntheticClip

        path = tmp_path / "recordings" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        sound = SyntheticClip(index).pcm(rate).astype(np.float32) / 32768
        form = "NIST" if path.suffix == ".sph" else None
        soundfile.write(path, np.stack([sound] * channels, axis=1), rate, subtype=encoding, format=form)
        return path

    return record
