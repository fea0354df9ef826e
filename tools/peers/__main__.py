"""How fast other simulators replay the requests of `tests.perf.pairs`'s loads `text` and `mooncake`.

    REHEARSAL_PEERS=PYTHON python -m tools.peers [--mooncake FILE]

PYTHON: the interpreter of an environment that has one of the peers, or both. Each replay is one process and is timed in
it: reading its trace and its own report are part of it, imports are not. Lowest CPU time of three runs.
"""

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from workloads.formats import write_mooncake
from workloads.registry import make_trace

HERE = Path(__file__).parent
TEXT = {"modality": "text", "reply": "text", "rate": 100.0, "requests": 3000}
"""Workload of the load `text`."""
FIRST = 1000
"""Requests of Mooncake's trace, as in the load `mooncake`."""
RUNS = 3


class Peer(NamedTuple):
    """A simulator. `script` runs it on a trace in the `format` that it reads; `install`: what pip installs for that."""

    name: str
    script: str
    format: str
    install: str
    models: str
    leaves_out: str


PEERS = (
    Peer(
        "Dynamo replay",
        "dynamo_replay.py",
        ".jsonl",
        "--no-deps ai-dynamo==1.6.1 && pip install ai-dynamo-runtime==1.6.1 pyyaml msgspec packaging",
        "a scheduler of its own in Rust after vLLM's, prefix cache, its built-in step times",
        "vLLM's scheduler, clients that wait or give up, a row per token, voice",
    ),
    Peer(
        "Vidur",
        "vidur_replay.py",
        ".csv",
        "vidur==0.0.26",
        "a scheduler of its own in Python (Sarathi, chunked prefill), events of each step",
        "vLLM's scheduler, contents of prompts, clients, a row per token, voice; step times are made up here",
    ),
)


def write_text(path: Path) -> None:
    """Write the load `text` in Mooncake's format."""
    write_mooncake(make_trace("poisson", TEXT, 0), path)


def write_first(source: Path, path: Path) -> None:
    """Copy the first requests of a trace of Mooncake's."""
    with source.open() as lines:
        path.write_text("".join(islice(lines, FIRST)))


def write_vidur(trace: Path, path: Path) -> None:
    """Write a trace of Mooncake's format as Vidur reads it: times, lengths, and one date for all."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["Date", "Time", "PromptTokenCount", "CompletionTokenCount"])
        for each in map(json.loads, trace.read_text().splitlines()):
            writer.writerow(["replay", each["timestamp"] / 1000, each["input_length"], each["output_length"]])


def run(python: str, peer: Peer, trace: Path) -> dict[str, Any] | None:
    """The fastest of a peer's runs on a trace; None where the environment does not have the peer."""
    runs = []
    for _ in range(RUNS):
        done = subprocess.run(
            [python, HERE / peer.script, trace], capture_output=True, text=True, check=False, cwd=trace.parent
        )
        if done.returncode:
            if "ModuleNotFoundError" in done.stderr:
                return None
            raise SystemExit(f"{peer.name}: {done.stderr[-2000:]}")
        runs.append(json.loads(done.stdout.splitlines()[-1]))
    return min(runs, key=lambda each: each["cpu_s"])


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument(
        "--mooncake", type=Path, help="Mooncake's conversation trace, of which 1,000 requests are replayed"
    )
    given = parser.parse_args(arguments)
    python = os.environ.get("REHEARSAL_PEERS")
    if python is None:
        hint = "; ".join(f"{peer.name}: pip install {peer.install}" for peer in PEERS)
        print(f"no peers: set REHEARSAL_PEERS to the Python of an environment with one of them ({hint})")
        return 0
    columns = ("peer", "version", "trace", "simulated s a CPU s", "us a token", "models", "does not model")
    print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    with tempfile.TemporaryDirectory() as folder:
        traces = {"text, 100 requests a second": Path(folder) / "text.jsonl"}
        write_text(Path(folder) / "text.jsonl")
        if given.mooncake is not None:
            traces["Mooncake, first 1,000"] = Path(folder) / "mooncake.jsonl"
            write_first(given.mooncake, Path(folder) / "mooncake.jsonl")
        for trace in traces.values():
            write_vidur(trace, trace.with_suffix(".csv"))
        for peer in PEERS:
            for name, trace in traces.items():
                cost = run(python, peer, trace.with_suffix(peer.format))
                if cost is None:
                    print(f"| {peer.name} | is not installed: pip install {peer.install} |")
                    break
                speed = cost["simulated_s"] / cost["cpu_s"]
                token_us = 1e6 * cost["cpu_s"] / cost["tokens"]
                print(
                    f"| {peer.name} | {cost['version']} | {name} | {speed:,.0f} | {token_us:.2f} "
                    f"| {peer.models} | {peer.leaves_out} |",
                    flush=True,
                )
    return 0


if __name__ == "__main__":
    sys.exit(main())
