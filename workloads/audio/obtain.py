"""Recorded speech for a machine without any: from a folder, from LibriSpeech, or from two Debian packages.

All leave a folder of usable recordings for workload `speech`, with manifest.json: source, licence, length and
checksum of each. Existing files are not fetched again.
"""

import json
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from workloads.audio.decode import BadRecording
from workloads.audio.library import Library, audio_files, open_recording
from workloads.audio.utterances import utterances
from workloads.errors import UserError
from workloads.files import hub

MANIFEST = "manifest.json"
DOWNLOADS = ".download"  # hidden, so that no library takes it for recordings
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Package:
    """A Debian package with recordings below `folder`."""

    name: str
    folder: str
    licence: str


PACKAGES = (
    Package("asterisk-core-sounds-en-g722", "usr/share/asterisk/sounds", "CC-BY-SA-3.0"),
    Package("pocketsphinx-testdata", "usr/share/pocketsphinx/test/data", "BSD-2-Clause"),
)


@dataclass(frozen=True)
class Obtained:
    """The obtained recordings: `recordings` of `seconds` together; `passed_over` counts unusable files by kind."""

    recordings: int
    seconds: float
    passed_over: Counter[str]


def obtain(source: str, out: Path, skip_bad: bool = False, progress: Progress = lambda done, total: None) -> Obtained:
    """Fill `out` from `source`: "librispeech", "debian" or the path of a folder. `progress(done, total)` per file.

    Unusable files of a folder are a UserError, or counted with `skip_bad`; those of the packages are always counted.
    """
    if source not in ("debian", "librispeech") and not Path(source).exists():
        raise UserError(f"{source} does not exist; give a folder of recordings.")
    try:
        out.mkdir(parents=True, exist_ok=True)
        if source == "debian":
            return _from_debian(out, progress)
        if source == "librispeech":
            return _from_librispeech(out, progress)
        return _from_folder(Path(source), out, skip_bad, progress)
    except OSError as error:
        raise UserError(f"cannot write to {out}: {error}; choose a writable folder.") from None


def _from_folder(source: Path, out: Path, skip_bad: bool, progress: Progress) -> Obtained:
    if out.resolve().is_relative_to(source.resolve()):
        raise UserError(f"{out} lies in {source} itself; choose a folder outside of it.")
    skipped = _copy(source, out, skip_bad, progress)
    return _finish(out, skipped, {"": {"source": "a folder", "licence": "as its owner says"}})


def _from_debian(out: Path, progress: Progress) -> Obtained:
    """568 prompts of one voice (G.722) and 10 read sentences; needs apt-get and dpkg-deb, which check signatures."""
    skipped: Counter[str] = Counter()
    sources = {}
    for package in PACKAGES:
        archive = _package_file(package.name, out / DOWNLOADS)
        sources[f"{package.name}/"] = {
            "source": f"Debian package {archive.name}",
            "licence": package.licence,
            "sha256": hub.sha256(archive),
        }
        with tempfile.TemporaryDirectory(dir=out / DOWNLOADS) as unpacked:
            _call(["dpkg-deb", "-x", str(archive), unpacked], Path())
            skipped += _copy(Path(unpacked) / package.folder, out / package.name, True, progress)
            licence = Path(unpacked) / "usr/share/doc" / package.name / "copyright"
            shutil.copyfile(licence, out / package.name / "LICENCE")
    return _finish(out, skipped, sources)


def _from_librispeech(out: Path, progress: Progress) -> Obtained:
    """The 2,620 utterances of test-clean, as FLAC files out of the pinned Parquet file."""
    import pyarrow.parquet as pq

    source = hub.dataset("librispeech")
    (table,) = hub.fetch(source, out / DOWNLOADS)
    opened = pq.ParquetFile(table)
    done, total = 0, opened.metadata.num_rows
    (out / "librispeech").mkdir(exist_ok=True)
    for batch in opened.iter_batches(batch_size=64, columns=["id", "audio"]):
        for row in batch.to_pylist():
            _write(out / "librispeech" / f"{Path(row['id']).name}.flac", row["audio"]["bytes"])
            progress(done := done + 1, total)
    about = {"source": f"{source.repository} at {source.revision}", "licence": source.licence}
    return _finish(out, Counter(), {"librispeech/": {**about, "sha256": source.files[0].sha256}})


def _package_file(name: str, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    if not list(folder.glob(f"{name}_*.deb")):
        with tempfile.TemporaryDirectory(dir=folder) as partial:
            _call(["apt-get", "download", name], Path(partial))
            for archive in Path(partial).glob("*.deb"):
                archive.replace(folder / archive.name)
    return next(folder.glob(f"{name}_*.deb"))


def _call(command: list[str], folder: Path) -> None:
    try:
        subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    except FileNotFoundError:
        raise UserError(
            f"{command[0]} is not on this machine; take --from librispeech, or a folder of recordings."
        ) from None
    except subprocess.CalledProcessError as error:
        output = (error.stderr or error.stdout).strip().splitlines() or ["it says nothing"]
        raise UserError(f"{' '.join(command)} failed: {output[-1]}; perhaps apt-get update helps.") from None


def _copy(source: Path, out: Path, skip_bad: bool, progress: Progress) -> Counter[str]:
    """Copy what a detector finds speech in; the others by kind, or the first as BadRecording."""
    skipped: Counter[str] = Counter()
    names = audio_files(source)
    for done, name in enumerate(names, 1):
        try:
            utterances(open_recording(source, name))
            (out / name).parent.mkdir(parents=True, exist_ok=True)
            _write(out / name, (source / name).read_bytes())
        except BadRecording as bad:
            if not skip_bad:
                raise
            skipped[bad.kind] += 1
        progress(done, len(names))
    return skipped


def _write(path: Path, content: bytes) -> None:
    """All or nothing, so that a broken run leaves no half file."""
    if path.exists() and path.read_bytes() == content:
        return
    part = path.with_name(f".{path.name}.part")
    part.write_bytes(content)
    part.replace(path)


def _finish(out: Path, skipped: Counter[str], sources: dict[str, dict[str, str]]) -> Obtained:
    library = Library.scan(out)
    manifest = {
        "sources": sources,
        "passed_over": dict(skipped),
        "seconds": round(library.seconds, 3),
        "recordings": [
            {"name": clip.name, "sha256": clip.sha256, "seconds": round(clip.seconds, 3)} for clip in library.clips
        ],
    }
    _write(out / MANIFEST, (json.dumps(manifest, indent=1) + "\n").encode())
    return Obtained(len(library.clips), library.seconds, skipped)
