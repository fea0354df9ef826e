"""A million requests: generated and written in under 10 s and 1 GiB, read from CSV in under 5 s, on one core."""

import subprocess
import sys
from pathlib import Path

GENERATE = """
import resource, sys, time
from workloads.registry import make_trace
t = time.process_time()
make_trace("gamma", {"requests": 1_000_000, "p": 0.3}, 0).save(sys.argv[1])
print(time.process_time() - t, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""
READ = """
import sys, time
from workloads.registry import make_trace
t = time.process_time()
trace = make_trace("burstgpt", {"path": sys.argv[1]}, 0)
print(time.process_time() - t, len(trace))
"""


def run(code: str, *args: str) -> list[float]:
    done = subprocess.run([sys.executable, "-c", code, *args], capture_output=True, text=True, check=True)
    return [float(word) for word in done.stdout.split()]


def test_a_million_requests_are_made_and_written(tmp_path: Path) -> None:
    seconds, kib = run(GENERATE, str(tmp_path / "t.parquet"))
    assert seconds < 10
    assert kib < 1024**2


def test_a_million_rows_are_read(tmp_path: Path) -> None:
    header = "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    row = "{t},{s:08x}-4f2b-9a7b,43,GPT-4,{n},446,1352,Conversation log\n"
    with (tmp_path / "b.csv").open("w") as file:
        file.write(header)
        file.writelines(row.format(t=i * 0.5, s=i // 3, n=50 + 500 * (i % 3)) for i in range(1_000_000))
    seconds, turns = run(READ, str(tmp_path / "b.csv"))
    assert turns == 1_000_000
    assert seconds < 5
