"""`rehearse data`: speech from a folder, from Debian packages and from LibriSpeech, on a machine that has none."""

import hashlib
import json
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.conftest import Rehearse
from tests.workloads.audio.conftest import Record
from workloads.audio.obtain import PACKAGES, obtain
from workloads.errors import UserError
from workloads.files import hub
from workloads.registry import make_trace


def test_a_folder_is_copied_with_its_checksums(record: Record, rehearse: Rehearse, tmp_path: Path) -> None:
    source = record("deep/a.wav", index=3).parents[1]
    record("b.flac", index=4)
    (source / "bad.wav").write_bytes(b"")
    arguments = ("data", "speech", "--from", str(source), "--out", "out")
    advice = "remove the file, or pass over such files (skip_bad=true or --skip-bad)"
    assert rehearse(*arguments) == (2, "", f"rehearse: {source}/bad.wav: is empty; {advice}.\n")
    for _ in range(2):
        status, said, _ = rehearse(*arguments, "--skip-bad")
        assert status == 0 and "2 recordings, " in said and "1 files passed over: 1 empty" in said
    manifest = json.loads(Path("out/manifest.json").read_text())
    assert manifest["passed_over"] == {"empty": 1}
    sums = {name: hashlib.sha256((source / name).read_bytes()).hexdigest() for name in ("b.flac", "deep/a.wav")}
    assert {entry["name"]: entry["sha256"] for entry in manifest["recordings"]} == sums
    assert "2 recordings" in make_trace("speech", {"path": str(tmp_path / "out")}, 0).header.notes[0]


@pytest.mark.parametrize(
    ("source", "out", "sentence"),
    [
        ("recordings", "recordings/out", r"lies in .* itself; choose a folder outside of it"),
        ("nothing-here", "out", r"^nothing-here does not exist; give a folder of recordings\.$"),
        ("recordings", "recordings/a.wav", r"^cannot write to .*a\.wav: .* choose a writable folder\.$"),
    ],
)
def test_a_folder_that_cannot_be_copied_is_refused(
    record: Record, monkeypatch: pytest.MonkeyPatch, source: str, out: str, sentence: str
):
    monkeypatch.chdir(record("a.wav", index=3).parents[1])
    with pytest.raises(UserError, match=sentence):
        obtain(source, Path(out))


@pytest.fixture
def debian(record: Record, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An apt-get that knows both packages, each with one recording and one silent file; gives its log."""
    import soundfile

    if shutil.which("dpkg-deb") is None:
        pytest.skip("dpkg-deb is not on this machine")
    commands, archives, log = tmp_path / "bin", tmp_path / "archives", tmp_path / "log"
    for folder in (commands, archives):
        folder.mkdir()
    for package in PACKAGES:
        root = tmp_path / package.name
        for folder in ("DEBIAN", package.folder, f"usr/share/doc/{package.name}"):
            (root / folder).mkdir(parents=True)
        control = f"Package: {package.name}\nVersion: 1\nArchitecture: all\nMaintainer: a\nDescription: a\n"
        (root / "DEBIAN" / "control").write_text(control)
        (root / "usr/share/doc" / package.name / "copyright").write_text("free")
        shutil.copy(record("a.wav", index=3), root / package.folder / "hello.wav")
        soundfile.write(root / package.folder / "silence.wav", np.zeros(16_000), 16_000)
        archive = archives / f"{package.name}_1_all.deb"
        subprocess.run(["dpkg-deb", "-b", root, archive], check=True, capture_output=True)
    script = f'#!/bin/sh\necho "$2" >> {log}\ncp {archives}/"$2"_1_all.deb . || {{ echo "E: no $2" >&2; exit 100; }}\n'
    (commands / "apt-get").write_text(script)
    (commands / "apt-get").chmod(0o755)
    monkeypatch.setenv("PATH", str(commands), prepend=":")
    return log


def test_debian_packages_are_fetched_once_and_leave_their_speech(
    debian: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    seen: list[tuple[int, int]] = []
    for _ in range(2):
        got = obtain("debian", Path("out"), progress=lambda done, total: seen.append((done, total)))
        assert (got.recordings, got.passed_over) == (2, Counter(silent=2))
    assert debian.read_text().split() == [package.name for package in PACKAGES]
    assert seen == [(1, 2), (2, 2)] * 4
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert [source["licence"] for source in manifest["sources"].values()] == ["CC-BY-SA-3.0", "BSD-2-Clause"]
    assert (tmp_path / "out" / PACKAGES[0].name / "LICENCE").read_text() == "free"
    assert [entry["name"] for entry in manifest["recordings"]] == [f"{p.name}/hello.wav" for p in PACKAGES]


def test_a_package_that_cannot_be_downloaded_is_refused(
    debian: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    next((tmp_path / "archives").glob("asterisk*")).unlink()
    with pytest.raises(UserError, match=r"^apt-get download asterisk\S+ failed: E: no asterisk\S+; perhaps"):
        obtain("debian", tmp_path / "out")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match=r"^apt-get is not on this machine; take --from librispeech, or a folder"):
        obtain("debian", tmp_path / "out")


def test_recordings_of_librispeech_are_unpacked(
    record: Record, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parquet = tmp_path / "out" / ".download" / "0000.parquet"
    parquet.parent.mkdir(parents=True)
    sounds = [{"bytes": record("a.flac", index=i).read_bytes(), "path": "x"} for i in (3, 4)]
    pd.DataFrame({"id": ["1-2-0003", "1-2-0004"], "audio": sounds, "text": "T"}).to_parquet(parquet)
    real, sha256 = hub.dataset("librispeech"), hub.sha256(parquet)
    here = real.model_copy(update={"files": (real.files[0].model_copy(update={"sha256": sha256}),)})
    monkeypatch.setattr(hub, "dataset", lambda name: here)
    assert obtain("librispeech", tmp_path / "out").recordings == 2
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    names = ["librispeech/1-2-0003.flac", "librispeech/1-2-0004.flac"]
    assert [entry["name"] for entry in manifest["recordings"]] == names
    assert manifest["sources"]["librispeech/"]["sha256"] == sha256


def test_a_data_set_is_fetched_by_name(rehearse: Rehearse, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "fetch", lambda wanted, out, rows: [out / "a.csv"])
    status, said, _ = rehearse("data", "fetch", "burstgpt", "--out", "out")
    assert status == 0
    assert "revision v2.0; licence: CC-BY-4.0" in said and "out/a.csv" in said
