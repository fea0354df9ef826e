"""How good the load generator is against the null server, through the clients and endpoints of live runs.

    python -m tests.selftest.quality [--quick] [--json FILE]

Calls that send speech and receive as many messages: the send delay, and the error of the reported time to first packet.
Text: the arrivals at the server, from one process and from four, and the error of the reported latency, next to `vllm
bench serve`. Clients have one core, the null server another.
"""

import argparse
import json
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from harness.live.null_server.null_server import NullServer
from harness.live.run.floor import PROMPT, TOKENS, floor_of, play, voice_trace
from tests.selftest import vllm_bench
from workloads.registry import make_trace
from workloads.statistics import describe as statistics

SESSIONS = (32, 64, 128, 256, 512)
RATE = 100.0  # requests/s [config: load-generator comparison]
SHARDS = (1, 4)
SPEECH_S = 6.0  # of the longest utterance: users who mostly speak, and turns that end within the run [chosen]
WINDOW_S = 0.25  # of the index of dispersion, as in that comparison [config]


def calls(sessions: int, seconds: float, cores: tuple[int, int]) -> dict[str, Any]:
    """One row: sessions that send and receive."""
    with _on(cores[0]):
        exchange = play("voice", voice_trace(sessions, seconds, SPEECH_S), seconds, 1, {}, "--echo", core=cores[1])
    return asdict(floor_of("voice", sessions, 1, exchange)) | {"heard": exchange.server["messages_in"]}


def text(shards: int, seconds: float, cores: tuple[int, int]) -> dict[str, Any]:
    """One row: single requests, as a Poisson process, from `shards` processes."""
    lengths = {"prompt_tokens": PROMPT, "prompt_sigma": 0.0, "reply_tokens": TOKENS, "reply_sigma": 0.0}
    load = {"requests": int(RATE * seconds), "rate": RATE, "modality": "text", "reply": "text", "network_ms": 0.0}
    trace = make_trace("poisson", load | lengths, 0)
    with _on(cores[0]):
        exchange = play("text", trace, 2 * seconds, shards, {}, core=cores[1])
    floor = floor_of("text", len(trace), shards, exchange)
    planned = statistics.rate(np.sort(trace.columns()["arrival_s"]))
    delivered = _arrivals(exchange.truth["read_s"].to_numpy())
    return asdict(floor) | delivered | {"planned": planned, "client": "rehearse live"}


def peer(seconds: float, cores: tuple[int, int]) -> dict[str, Any] | None:
    """The same row of `vllm bench serve`; None where there is no vLLM."""
    if vllm_bench.version() is None:
        return None
    runs = []
    with tempfile.TemporaryDirectory() as name, _on(cores[0]):
        for n in (int(RATE * seconds), int(RATE * seconds) // 10):
            with NullServer("text", Path(name), core=cores[1]) as server:
                said = vllm_bench.bench(server, Path(name), n, RATE, PROMPT, TOKENS)
                runs.append((*said, server.stop()[0].to_pandas().tail(n)))
    (whole, whole_cpu_s, truth), (short, short_cpu_s, _) = runs
    first = truth["first_s"] - truth["read_s"]
    per_request_s = (whole_cpu_s - short_cpu_s) / (whole["completed"] - short["completed"])
    gap = (truth["last_s"] - truth["first_s"]) / (truth["packets"] - 1)
    p50_s, p99_s = whole["p50_ttft_ms"] / 1e3, whole["p99_ttft_ms"] / 1e3
    return {
        "client": f"vllm bench serve {vllm_bench.version()}",
        "shards": 1,
        "answers": whole["completed"],
        "reported_p50_s": p50_s,
        "reported_p99_s": p99_s,
        "true_p50_s": float(first.median()),
        "true_p99_s": float(first.quantile(0.99)),
        # Its answers are not known one by one: differences of percentiles. It counts from the send, not the schedule.
        "bias_p50_s": p50_s - float(first.median()),
        "bias_p99_s": p99_s - float(first.quantile(0.99)),
        "itl_reported_p50_s": whole["mean_itl_ms"] / 1e3,
        "itl_true_p50_s": float(gap.mean()),
        "cpu_s_per_answer": per_request_s,
        "start_cpu_s": short_cpu_s - per_request_s * short["completed"],
    } | _arrivals(np.sort(truth["read_s"].to_numpy()))


def _arrivals(times: np.ndarray) -> dict[str, float | None]:
    times = np.sort(times)
    return {
        "rate": statistics.rate(times),
        "dispersion": statistics.dispersion(times, WINDOW_S),
        "lag_1": statistics.lag_1(times),
        "gap_cv": statistics.gap_cv(times),
    }


@contextmanager
def _on(core: int) -> Iterator[None]:
    """What is started meanwhile has this core alone."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


CALLS = ("sessions", "sends_per_s", "send_delay_p50_s", "send_delay_p99_s", "send_delay_max_s")
CALLS += ("bias_p50_s", "bias_p99_s", "cpu_share", "failed", "server_cpu_share")
TEXT = ("client", "shards", "planned", "rate", "dispersion", "lag_1", "gap_cv", "reported_p50_s", "true_p50_s")
TEXT += ("bias_p50_s", "bias_p99_s", "send_delay_p50_s", "itl_reported_p50_s", "itl_true_p50_s", "cpu_s_per_answer")
"""Columns of the two tables."""


def show(title: str, columns: Sequence[str], rows: list[dict[str, Any]]) -> None:
    """Print these columns, with their times in ms."""
    table = pd.DataFrame(rows).reindex(columns=list(columns))
    times = [name for name in columns if name.endswith("_s") and name != "sends_per_s"] + ["cpu_s_per_answer"]
    table = table.assign(**{name: 1e3 * table[name].astype(float) for name in times if name in table})
    print(f"\n{title}\n{table.to_string(index=False, float_format='{:.2f}'.format, na_rep='–')}")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.selftest.quality", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two sizes, short, without vllm bench serve")
    parser.add_argument("--seconds", type=float, help="of each run; default 20, quick 4")
    parser.add_argument("--sessions", help="numbers of calls, as 32,64")
    parser.add_argument("--json", type=Path, help="write everything to this file")
    chosen = parser.parse_args(argv)
    seconds = chosen.seconds or (4.0 if chosen.quick else 20.0)
    sizes = [int(n) for n in chosen.sessions.split(",")] if chosen.sessions else (32, 256) if chosen.quick else SESSIONS
    free = sorted(os.sched_getaffinity(0))
    cores = free[0], free[-1]
    begun = time.monotonic()
    voice_rows = [calls(sessions, seconds, cores) for sessions in sizes]
    show("calls that send and receive, one process, times in ms", CALLS, voice_rows)
    text_rows = [text(shards, seconds, cores) for shards in SHARDS]
    if not chosen.quick and (other := peer(seconds, cores)) is not None:
        text_rows.append(other)
    show(f"text, {RATE:g} requests/s (Poisson: dispersion 1, lag_1 0, gap_cv 1), times in ms", TEXT, text_rows)
    print(f"{time.monotonic() - begun:.0f} s; clients on core {cores[0]}, null server on core {cores[1]}")
    if chosen.json:
        chosen.json.write_text(json.dumps({"calls": voice_rows, "text": text_rows}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
