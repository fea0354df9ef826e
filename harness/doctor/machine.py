"""What the machine brings: processor, memory, ports, and the packages that only some runs need."""

import importlib.util
import platform
import re
import socket
from pathlib import Path

from harness.doctor.check import Check, version
from harness.records.provenance import cores
from workloads.optional import install_command

NEEDED_BYTES = 2e9
"""[measured 1.3 GB resident for a bench point of speech_tiny; weights and pool of moe_small are 0.3 GB more]"""


def checks() -> list[Check]:
    """Checks the machine; processor and memory decide about device cpu."""
    return [_instructions(), _memory(), *_audio(), _port(), _websockets()]


def _instructions() -> Check:
    """vLLM's CPU build chooses its kernels by these."""
    flags = _processor_flags()
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


def _processor_flags() -> set[str]:
    lines = _text("/proc/cpuinfo").splitlines()
    return next((set(line.partition(":")[2].split()) for line in lines if line.startswith("flags")), set())


def _text(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""
