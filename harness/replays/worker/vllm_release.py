"""vLLM's source at a release: fetched once from the package index, and its Python put over the installed binaries.

A replay needs none of vLLM's kernels, so the schedulers of other releases run next to the installed one: each
point's worker has its release first on its path (`harness.replays.worker.fork_server`).
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path

from engines.server import RELEASE
from workloads.errors import UserError

_BUILD = ("setuptools-scm", "setuptools-rust")
"""Packages that vLLM's source needs, in addition to vLLM's own dependencies, before it tells its version."""
_SCHEDULER = Path("vllm", "v1", "core", "sched", "scheduler.py")


def release_of(given: str) -> str:
    """Return the name by which points call a user's vLLM: a release as given, a checkout by its version and content.

    The cache keeps the checkout's Python, so that its points can be run again. UserError for a name that is neither.
    """
    checkout = Path(given).expanduser()
    if not given or not checkout.is_dir():
        if not RELEASE.fullmatch(given):
            raise UserError(
                f"vLLM {given!r} is neither a release nor a folder; write for example 0.33.0, or give a checkout."
            )
        return given
    if not (checkout / _SCHEDULER).exists():
        raise UserError(f"{given} holds no vLLM ({_SCHEDULER}); give a release or a checkout.")
    digest = hashlib.sha256()
    for path in sorted((checkout / "vllm").rglob("*")):
        if path.is_file() and path.suffix not in _LEFT_OUT:
            digest.update(path.relative_to(checkout).as_posix().encode() + path.read_bytes())
    built = _version(checkout) or "0.0.0.dev0"
    release = f"{built}{'.' if '+' in built else '+'}{digest.hexdigest()[:8]}"
    if not (_cache() / release).exists():
        with tempfile.TemporaryDirectory(dir=_cache()) as scratch:
            _move(_copied(checkout, Path(scratch, "made")), _cache() / release)
    return release


def source(version: str) -> Path:
    """Return the folder of a release's source distribution, vLLM's own tests included. UserError if it is not
    available."""
    if not RELEASE.fullmatch(version):
        raise UserError(f"vLLM {version!r} is not a release; write for example 0.33.0.")
    folder = _cache() / version
    if folder.exists():
        return folder
    if "+" in version:
        raise UserError(f"vLLM {version} was a checkout and is no longer in the cache; give --vllm its folder.")
    with tempfile.TemporaryDirectory(dir=_cache()) as scratch:
        tools = str(Path(scratch, "tools"))
        _pip(version, "install", "--target", tools, *_BUILD)
        _pip(
            version,
            # In isolation its build would fetch a torch of its own, gigabytes of it.
            *("download", "--no-deps", "--no-build-isolation", "--no-binary", ":all:", "--dest", scratch),
            f"vllm=={version}",
            PYTHONPATH=tools,
            VLLM_TARGET_DEVICE="empty",
            VLLM_VERSION_OVERRIDE=version,
        )
        with tarfile.open(next(Path(scratch).glob("*.tar.gz"))) as archive:
            archive.extractall(scratch, filter="data")
        _move(Path(scratch, f"vllm-{version}"), folder)
    return folder


def python_path(release: str) -> Path:
    """Return the folder to put first on the path of a process that runs on `release`, see `release_of`. It holds that
    vLLM's Python and the binaries of the installed vLLM. UserError in one sentence."""
    sources = source(release)
    if not (sources / _SCHEDULER).exists():
        raise UserError(f"vLLM {release} has no {_SCHEDULER}, which replays run on; give a newer release.")
    spec = find_spec("vllm")
    binaries = [each.resolve() for each in Path((spec and spec.origin) or "").parent.glob("*.so")]
    over = hashlib.sha256(repr(sorted(binaries)).encode()).hexdigest()[:8]
    folder = _cache() / f"{_prefix(release)}{over}"
    if not folder.exists():
        with tempfile.TemporaryDirectory(dir=_cache()) as scratch:
            made = _copied(sources, Path(scratch, "made"))
            for binary in binaries:
                (made / "vllm" / binary.name).symlink_to(binary)
            # By its version's name vLLM knows which platform it was built for.
            about = made / f"vllm-{release}.dist-info"
            about.mkdir()
            local = f"{release}.cpu" if "+" in release else f"{release}+cpu"
            about.joinpath("METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {local}\n")
            _move(made, folder)
    return folder


def environment(folder: Path) -> dict[str, str]:
    """Return the environment variables of a process that runs on `python_path`'s folder: the Python path, and a cache
    of that vLLM's own, as it would overwrite another's entries."""
    before = os.environ.get("PYTHONPATH")
    path = os.pathsep.join([str(folder), *([before] if before else [])])
    return {"PYTHONPATH": path, "VLLM_CACHE_ROOT": str(folder / "cache")}


def check(releases: Iterable[str]) -> None:
    """Raise UserError where the adapter misses something of one of them, by its name."""
    for release in sorted(set(releases)):
        tried = subprocess.run(
            [sys.executable, "-P", "-c", _ADAPTER],
            env=os.environ | environment(python_path(release)),
            capture_output=True,
            text=True,
            check=False,
        )
        if tried.returncode:
            why = (tried.stderr.strip().splitlines() or ["it cannot be imported"])[-1].partition(" (/")[0]
            raise UserError(f"vLLM {release} is not one that replays run on: {why}.")


def check_loaded(release: str | None) -> None:
    """Raise RuntimeError unless the vLLM of this process is `release`; None: any."""
    spec = find_spec("vllm")
    place = Path((spec and spec.origin) or "").parent.parent.name
    if release is not None and not place.startswith(_prefix(release)):
        raise RuntimeError(f"the point is to run on vLLM {release}, and another was loaded")


_ADAPTER = """
import engines.registry, harness.replays.worker.replay
engines.registry.ENGINES.values()
from engines.core import vllm_adapter
for name in vllm_adapter.__all__:
    getattr(vllm_adapter, name)
"""
_LEFT_OUT = (".pyc", ".so")


def _prefix(release: str) -> str:
    return f"python-{release}-"


def _copied(sources: Path, made: Path) -> Path:
    ignored = shutil.ignore_patterns("__pycache__", *(f"*{suffix}" for suffix in _LEFT_OUT))
    shutil.copytree(sources / "vllm", made / "vllm", ignore=ignored)
    return made


def _version(folder: Path) -> str | None:
    """Return the version of a source distribution, or of a checkout that was built; None without any."""
    for name, pattern in (
        ("PKG-INFO", r"^Version: (\S+)"),
        ("vllm/_version.py", r"^__version__ = (?:version = )?'([^'\n]+)'"),
    ):
        path = folder / name
        match = re.search(pattern, path.read_text(), re.MULTILINE) if path.exists() else None
        if match is not None:
            return match[1]
    return None


def _cache() -> Path:
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = (caches / "rehearsal" / "vllm").absolute()  # vLLM's tests run in another directory
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _move(made: Path, folder: Path) -> None:
    """Publish a folder at once; another process may have published the same before."""
    try:
        os.replace(made, folder)
    except OSError:
        if not folder.exists():
            raise


def _pip(version: str, *arguments: str, **environment: str) -> None:
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments]
    done = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=False)
    if done.returncode:
        why = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or [done.stderr.strip()]
        raise UserError(f"vLLM {version}: the package index gave no source: {why[-1][:200]}")
