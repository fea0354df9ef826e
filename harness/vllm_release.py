"""vLLM's source at a release: fetched once from the package index, and its Python put over the installed binaries.

A replay needs none of vLLM's kernels, so the schedulers of other releases run beside the one that is installed.
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
from importlib.util import find_spec
from pathlib import Path

from rehearsal.workloads.errors import UserError

_BUILD = ("setuptools-scm", "setuptools-rust")
"""What vLLM's source wants before it says what it is called, beside what vLLM itself brings."""


def source(version: str) -> Path:
    """The folder of a release's source distribution, vLLM's own tests included. UserError if it is not to be had."""
    if not re.fullmatch(r"\d+\.\d+\.\d+(\.?[a-z]+\d+)?", version):
        raise UserError(f"vLLM {version!r} is no release; give one such as 0.33.0.")
    folder = _cache() / version
    if folder.exists():
        return folder
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
    """The folder to put first on the path of a process that is to run on `release`: a version, or a checkout's folder.

    It holds vLLM's Python from there and the binaries of the vLLM that is installed. UserError in one sentence.
    """
    found = Path(release).expanduser()
    found = found if found.is_dir() else source(release)
    if not (found / "vllm" / "v1" / "core" / "sched" / "scheduler.py").exists():
        raise UserError(
            f"{release} holds no vLLM (vllm/v1/core/sched/scheduler.py); give a release or a checkout."
        )
    files = sorted(
        path for path in (found / "vllm").rglob("*") if path.is_file() and path.suffix not in _LEFT_OUT
    )
    digest = hashlib.sha256()
    for path in files:
        digest.update(path.relative_to(found).as_posix().encode() + path.read_bytes())
    version = _version(found) or f"0.0.0.dev0+{digest.hexdigest()[:8]}"
    folder = _cache() / f"python-{version}-{digest.hexdigest()[:16]}"
    if not folder.exists():
        with tempfile.TemporaryDirectory(dir=_cache()) as scratch:
            made = Path(scratch, "made")
            ignored = shutil.ignore_patterns("__pycache__", *(f"*{suffix}" for suffix in _LEFT_OUT))
            shutil.copytree(found / "vllm", made / "vllm", ignore=ignored)
            spec = find_spec("vllm")
            for binary in Path((spec and spec.origin) or "").parent.glob("*.so"):
                (made / "vllm" / binary.name).symlink_to(binary)
            # By its version's name vLLM knows which platform it was built for.
            about = made / f"vllm-{version}.dist-info"
            about.mkdir()
            local = f"{version}.cpu" if "+" in version else f"{version}+cpu"
            about.joinpath("METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {local}\n")
            _move(made, folder)
    return folder


def use(release: str) -> None:
    """Start this command again with `python_path(release)` in front, unless it is there: everything else, workers,
    records and ids of points included, then finds that vLLM as the one that is installed.

    UserError where the adapter misses something of it, by its name.
    """
    folder = python_path(release)
    spec = find_spec("vllm")
    if spec is not None and spec.origin and Path(spec.origin).is_relative_to(folder):
        return
    before = os.environ.get("PYTHONPATH")
    told = os.environ | {"PYTHONPATH": os.pathsep.join([str(folder), *([before] if before else [])])}
    tried = subprocess.run(
        [sys.executable, "-c", _ADAPTER], env=told, capture_output=True, text=True, check=False
    )
    if tried.returncode:
        why = (tried.stderr.strip().splitlines() or ["it cannot be imported"])[-1].partition(" (/")[0]
        raise UserError(f"vLLM {release} is not one that replays run on: {why}.")
    os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], told)


_ADAPTER = """
import rehearsal.engines.registry, rehearsal.harness.replay
rehearsal.engines.registry.ENGINES.values()
from rehearsal.engines.core import vllm_adapter
for name in vllm_adapter.__all__:
    getattr(vllm_adapter, name)
"""
_LEFT_OUT = (".pyc", ".so")


def _version(folder: Path) -> str | None:
    """Of a source distribution, or of a checkout that was built."""
    for name, pattern in (
        ("PKG-INFO", r"^Version: (\S+)"),
        ("vllm/_version.py", r"^__version__ = .*'([^']+)'"),
    ):
        path = folder / name
        found = re.search(pattern, path.read_text(), re.MULTILINE) if path.exists() else None
        if found is not None:
            return found[1]
    return None


def _cache() -> Path:
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = caches / "rehearsal" / "vllm"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _move(made: Path, folder: Path) -> None:
    """Publish a folder at once; another process may have been faster, with the same."""
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
