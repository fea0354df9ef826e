"""Recordings made up for a test, and the real ones beside the repository."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("soundfile", reason="needs the extra audio")
pytest.importorskip("soxr", reason="needs the extra audio")
pytest.importorskip("webrtcvad", reason="needs the extra audio")

SHARED_AUDIO = Path(__file__).parents[4] / "shared" / "data" / "audio"
Record = Callable[..., Path]


@pytest.fixture(scope="session")
def real_speech() -> Path:
    """The folder of real recordings; skips the test where it is not at hand."""
    if not SHARED_AUDIO.exists():
        pytest.skip("real data not at hand: shared/data/audio")
    return SHARED_AUDIO


@pytest.fixture
def record(tmp_path: Path) -> Record:
    """Write speech-like sound to a file of a folder; gives its path."""

    def record(
        name: str, rate: int = 16_000, channels: int = 1, encoding: str = "PCM_16", index: int = 0
    ) -> Path:
        import soundfile

        from workloads.audio.synth import SyntheticClip

        path = tmp_path / "recordings" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        sound = SyntheticClip(index).pcm(rate).astype(np.float32) / 32768
        form = "NIST" if path.suffix == ".sph" else None
        soundfile.write(path, np.stack([sound] * channels, axis=1), rate, subtype=encoding, format=form)
        return path

    return record
