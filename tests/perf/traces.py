"""How fast workloads are: a million requests made, written and read, and speech for 128, each in its own process.

    python -m tests.perf.traces

Beside each time stands how many times longer than drawing a million lognormal numbers it took in the same process,
which travels from machine to machine better than seconds do.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

MILLION = 1_000_000


def make_and_write(folder: Path) -> None:
    from workloads.registry import make_trace

    make_trace("gamma", {"requests": MILLION, "p": 0.3}, 0).save(folder / "requests.parquet")


def read_csv(folder: Path) -> None:
    from workloads.registry import make_trace

    assert len(make_trace("burstgpt", {"path": folder / "burst.csv"}, 0)) == MILLION


def stream_speech(folder: Path) -> None:
    from workloads.audio.duplex import continuous
    from workloads.audio.synth import synthetic_clips

    streams = continuous(synthetic_clips(), 128, 16_000, seed=0)
    assert sum(1 for stream in streams for _ in stream.chunks(60)) == 128 * 3000


TASKS: dict[str, Callable[[Path], None]] = {
    "a million requests made and written": make_and_write,
    "a million rows of BurstGPT read": read_csv,
    "60 s of speech for 128 sessions": stream_speech,
}


def _write_csv(path: Path) -> None:
    header = "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    row = "{t},{s:08x}-4f2b-9a7b,43,GPT-4,{n},446,1352,Conversation log\n"
    with path.open("w") as file:
        file.write(header)
        file.writelines(row.format(t=i * 0.5, s=i // 3, n=50 + 500 * (i % 3)) for i in range(MILLION))


def _measure(name: str, folder: Path) -> None:
    rng = np.random.default_rng(0)
    begin = time.process_time()
    rng.lognormal(0.0, 1.0, MILLION)
    unit = time.process_time() - begin
    begin = time.process_time()
    TASKS[name](folder)
    seconds = time.process_time() - begin
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{name:<38}{seconds:>8.2f} s{seconds / unit:>8.0f} x{peak_mib:>8.0f} MiB", flush=True)


def main() -> None:
    if len(sys.argv) == 3:
        _measure(sys.argv[1], Path(sys.argv[2]))
        return
    print(f"{'':<38}{'one core':>10}{'drawing':>10}{'peak':>12}")
    with tempfile.TemporaryDirectory() as folder:
        _write_csv(Path(folder) / "burst.csv")
        for name in TASKS:
            subprocess.run([sys.executable, "-m", "tests.perf.traces", name, folder], check=True)


if __name__ == "__main__":
    main()
