"""What misbehaving clients cost the others, and what they leave behind.

    python -m tests.selftest.churn --minutes 10

The server has 32 calls at once that talk, listen and interrupt, next to the clients of `tests.selftest.fault_clients`
and their bursts of connections. Between two bursts all calls end and others begin: a call that lasts needs more and
more memory, and that is no leak. It prints a summary and writes churn.json. The exit status is 1 when a healthy turn
failed, a faulty client had a wrong answer, or something was left behind.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import sys
import time
import urllib.request
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import psutil

from engines.endpoint.limits import Limits
from harness.client.client_params import ClientParams
from harness.clocks.clock import WallClockLoop
from harness.events.log import EventLog
from harness.live.endpoints.logs import FailureLog, SendLog
from harness.live.endpoints.target import TargetParams
from harness.live.kinds import kind_of
from harness.request_tables.request_table import FAILED, UNFINISHED, request_table
from harness.serving import ServeConfig, ServerProcess
from tests.population import serve_population
from tests.selftest.fault_clients import FAULTS
from workloads.registry import make_trace
from workloads.trace import Trace

SESSIONS, CAP = 32, 64
"""[config] healthy sessions, and the server's cap."""
ARRIVALS = 8.0
"""Calls that begin in a second: [chosen]."""
LIMITS = Limits.model_validate(
    {"max_sessions": CAP, "idle_timeout_s": 15, "ping_s": 3, "queue_bytes": 256 * 1024, "handshake_timeout_s": 3}
)
"""Shorter and lower than the defaults, so that minutes show what would take an hour: [chosen]."""
SETTINGS = {"kv_pool_blocks": 4096, "host_kv_gb": 2.0}
"""Small pools: [chosen] they are full after a minute, and what is kept of each block is then no growth of memory."""
SAMPLE_S = 1.5
TURN_S = 7.0
"""No turn of the workload with its reply is shorter on average [measured], so that no call ends early."""
LAST_TURN_S = 30.0
"""From the beginning of the last turns to the next calls, s: [chosen] longer than the longest turn."""
ROUND_S = 90.0
"""Shortest time between two bursts in which calls end and others begin: [chosen] enough for some turns of each."""
WARM_SHARE = 0.25
"""Of the churn, not part of the slope: [chosen] pools and caches fill first."""


class Sample(NamedTuple):
    """At `t_s` since the start. `lag_s`: the most that the server's loop was held up in the last 2 s.
    `waited_s`: how long it has been ready to run and had no core so far, which holds the loop up as well."""

    t_s: float
    rss_kib: float
    descriptors: int
    sessions: int
    sockets: int
    replies: int
    lag_s: float
    waited_s: float


@dataclass
class Churn:
    """What was seen. `bursts`: begin and end (s since the start) and answers; `faults`: answers by kind of fault."""

    turns: pd.DataFrame
    failures: Counter[str]
    samples: list[Sample]
    calm_s: float
    end_s: float
    send_delay_p99_s: float
    bursts: list[tuple[float, float, dict[str, int]]] = field(default_factory=list)
    faults: dict[str, dict[str, int]] = field(default_factory=dict)
    counters: dict[str, float] = field(default_factory=dict)


def rounds(seconds: float, calm_s: float, bursts: int) -> list[tuple[float, float]]:
    """When calls begin, and when they begin no more turns, s: all change half-way between bursts, if these are long
    enough apart."""
    apart_s = seconds / (bursts + 1)
    changes = [calm_s + apart_s * (n + 0.5) for n in range(bursts + 1)] if apart_s >= ROUND_S else []
    ends = [*(at_s - LAST_TURN_S for at_s in changes), calm_s + seconds]
    return list(zip([0.0, *changes], ends, strict=True))


def healthy_trace(begin_s: float, end_s: float, sessions: int = SESSIONS, seed: int = 0) -> Trace:
    """`sessions` calls from `begin_s` on of which none is over at `end_s`: synthetic speech, interrupted."""
    turns = int((end_s - begin_s) / TURN_S) + 2
    params = {"sessions": 4 * sessions, "turns": 4.0 * turns, "p": 0.5, "rate": ARRIVALS}
    # A dozen seconds, so that the end is not waited for
    params |= {"reply_tokens": 25, "max_reply_tokens": 50}
    trace = make_trace("speech", params, seed)
    columns = trace.columns()
    ids, lengths = np.unique(columns["session"], return_counts=True)
    kept = ids[lengths >= turns][:sessions]
    assert len(kept) == sessions, "four times as many calls, four times as long, are enough"
    rows = np.isin(columns["session"], kept) & (columns["turn"] < turns)
    chosen = {name: values[rows] for name, values in columns.items()}
    opening = chosen["turn"] == 0
    chosen["arrival_s"] = np.where(opening, begin_s + np.cumsum(opening) / ARRIVALS, np.nan)
    about = {name: getattr(trace.header, name) for name in ("generator", "params", "seed", "streams", "notes")}
    return Trace.from_columns(chosen, **about)


class Calls:
    """The healthy calls of one round."""

    def __init__(self, url: str, begin_s: float, end_s: float, sessions: int = SESSIONS, seed: int = 0) -> None:
        self.trace = healthy_trace(begin_s, end_s, sessions, seed)
        self.log, self.sends, self.failures = EventLog(), SendLog(), FailureLog()
        self._clients = ClientParams.model_validate({"stop_after_s": end_s})
        target = TargetParams.model_validate({"url": url, "dialect": "rehearsal"})
        self.endpoint = kind_of(self.trace).endpoint(self.trace, target, self.log, self.sends, self.failures)

    async def play(self) -> None:
        await serve_population(self.trace, self.endpoint, self.log, self._clients)
        await self.endpoint.aclose()

    def turns(self) -> pd.DataFrame:
        """One row per turn that began."""
        return request_table(self.log.events().to_pandas(), pd.DataFrame(self.trace.columns()))


async def churn(server: ServerProcess, seconds: float, calm_s: float, burst: int, bursts: int) -> Churn:
    """Healthy sessions for `calm_s` alone, and for `seconds` among the others."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, WallClockLoop)
    all_calls = [Calls(server.url, *when, seed=n) for n, when in enumerate(rounds(seconds, calm_s, bursts))]
    for calls in all_calls:
        await calls.endpoint.prepare()
    origin = time.monotonic()
    loop.restart(origin)

    async def play() -> None:
        for calls in all_calls:
            await calls.play()

    samples: list[Sample] = []
    sampling = asyncio.create_task(_sample(server, samples), name="samples")
    users = asyncio.create_task(play(), name="users")
    await asyncio.wait({users, sampling}, timeout=calm_s, return_when=asyncio.FIRST_COMPLETED)
    arguments = (server.url, *map(str, (seconds, burst, bursts)))
    command = (sys.executable, "-m", "tests.selftest.fault_clients", *arguments)
    faults = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    try:
        everybody = asyncio.gather(users, faults.communicate())
        await asyncio.wait({everybody, sampling}, return_when=asyncio.FIRST_COMPLETED)
        if sampling.done():
            sampling.result()  # it has failed: the server is gone
        _, (told, _) = await everybody
        end_s = loop.time()
    finally:
        if faults.returncode is None:
            faults.terminate()
            await faults.wait()
        sampling.cancel()
        await asyncio.wait({sampling})
    lines = [json.loads(line) for line in told.splitlines()]
    await asyncio.sleep(LIMITS.close_timeout_s + 1)
    counters = await asyncio.to_thread(scrape, server.metrics_url)
    samples.append(_seen(server, counters, loop.time()))
    for calls in all_calls:
        calls.log.event(loop.time(), "run_end", -1, -1)
    delays = np.concatenate([calls.sends.table()["send_delay_s"].to_numpy() for calls in all_calls])
    return Churn(
        turns=pd.concat([calls.turns() for calls in all_calls], ignore_index=True),
        failures=Counter(why for calls in all_calls for why in calls.failures.table()["reason"].to_pylist()),
        samples=samples,
        calm_s=calm_s,
        end_s=end_s,
        send_delay_p99_s=float(np.quantile(delays, 0.99)),
        bursts=[(line["burst"][0] - origin, line["burst"][1] - origin, line["answers"]) for line in lines[:-1]],
        faults=lines[-1]["faults"],
        counters=counters,
    )


async def _sample(server: ServerProcess, samples: list[Sample]) -> None:
    """Note the state of the server every `SAMPLE_S`, without end."""
    loop = asyncio.get_running_loop()
    while True:
        counters = await asyncio.to_thread(scrape, server.metrics_url)
        samples.append(_seen(server, counters, loop.time()))
        await asyncio.sleep(SAMPLE_S)


def _seen(server: ServerProcess, counters: dict[str, float], t_s: float) -> Sample:
    return Sample(
        t_s,
        psutil.Process(server.pid).memory_info().rss / 1024,
        int(counters["rehearsal_process_open_fds"]),
        int(counters["rehearsal_sessions_open"]),
        int(counters["rehearsal_sockets_open"]),
        int(counters["rehearsal_replies_under_way"]),
        counters["rehearsal_loop_lag_most_seconds"],
        int(Path(f"/proc/{server.pid}/schedstat").read_text().split()[1]) / 1e9,
    )


def scrape(url: str) -> dict[str, float]:
    """Return the values of the metrics page by name and labels, as written there."""
    with urllib.request.urlopen(url, timeout=10) as page:
        lines = page.read().decode().splitlines()
    pairs = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    return {name: float(value) for name, value in pairs}


def memory(seen: Churn) -> dict[str, float]:
    """Return a line through the resident memory in the churn after warming up: slope, R² and growth. Empty with fewer
    than three samples."""
    warm_s = seen.calm_s + WARM_SHARE * (seen.end_s - seen.calm_s)
    kept = [each for each in seen.samples if warm_s <= each.t_s <= seen.end_s]
    if len(kept) < 3:
        return {}
    minutes = np.array([each.t_s for each in kept]) / 60
    kib = np.array([each.rss_kib for each in kept])
    r_squared = np.corrcoef(minutes, kib)[0, 1] ** 2 if np.ptp(kib) else 1.0
    slope = np.polyfit(minutes, kib, 1)[0]
    return {"kib_per_min": float(slope), "r_squared": float(r_squared), "growth_kib": float(kib[-1] - kib[0])}


def healthy(seen: Churn) -> list[dict[str, Any]]:
    """Return turns, failed turns and TTFP (ms) before the churn, among fault clients, during the bursts, and of all."""
    turns: Any = seen.turns
    ends, failed = turns["turn_end_s"], turns["status"].isin((FAILED, UNFINISHED))
    calm, in_burst = ends < seen.calm_s, pd.Series(False, ends.index)
    for begin_s, end_s, _ in seen.bursts:
        in_burst |= ends.between(begin_s, end_s)
    parts = {"before": calm, "among fault clients": ~calm & ~in_burst, "during a burst": in_burst, "all": True}
    rows = []
    for name, part in parts.items():
        chosen = pd.Series(part, ends.index)
        p50, p90 = (1e3 * turns["audio_ttfp_s"][chosen].dropna().quantile([0.5, 0.9])).tolist()
        counts = {"turns": int(chosen.sum()), "failed": int((chosen & failed).sum())}
        rows.append({"when": name, **counts, "ttfp_p50_ms": p50, "ttfp_p90_ms": p90})
    return rows


def wrong(seen: Churn) -> list[str]:
    """What should not have been, in words."""
    found = [f"healthy sessions: {reason}, {count} times" for reason, count in seen.failures.items()]
    if failed := healthy(seen)[-1]["failed"]:
        found.append(f"{failed} turns of healthy sessions failed")
    for kind, answers in seen.faults.items():
        right = FAULTS[kind][1]
        found += [f"who {kind} was answered {a}, {n} times" for a, n in answers.items() if a not in right]
    for *_, answers in seen.bursts:
        odd = {a: n for a, n in answers.items() if a not in ("hello", "1013")}
        found += [f"of a burst {n} were answered {a}" for a, n in odd.items()]
    last = seen.samples[-1]
    if last.sessions or last.replies:
        found.append(f"{last.sessions} sessions and {last.replies} replies were left behind")
    if last.sockets > 1:  # the one that asks
        found.append(f"{last.sockets - 1} sockets were left behind")
    return found


def show(seen: Churn) -> None:
    """Print the summary."""
    print(pd.DataFrame(healthy(seen)).round().to_string(index=False))
    for kind, answers in seen.faults.items():
        print(f"a client that {kind} was answered {answers}")
    for begin_s, end_s, answers in seen.bursts:
        during = [each for each in seen.samples if begin_s + 1 <= each.t_s <= end_s + 2]
        lag_ms = 1e3 * max((each.lag_s for each in during), default=np.nan)
        waited_ms = 1e3 * (during[-1].waited_s - during[0].waited_s) if during else np.nan
        print(
            f"burst against a cap of {CAP}: {answers}, in {end_s - begin_s:.1f} s; "
            f"the server's loop was held up for {lag_ms:.1f} ms at most, and waited {waited_ms:.0f} ms for a core"
        )
    first, last = seen.samples[0], seen.samples[-1]
    print(f"memory of the server: {last.rss_kib / 1024:.0f} MiB at the end, {memory(seen)}")
    print(f"descriptors: {first.descriptors} at first, {last.descriptors} at the end")
    print(f"send delay of the healthy clients: p99 {1e3 * seen.send_delay_p99_s:.2f} ms")
    for sentence in wrong(seen):
        print(f"WRONG: {sentence}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10, help="of misbehaviour")
    parser.add_argument("--out", type=Path, default=Path("results/churn"))
    asked = parser.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    config = {"engine": "liveserve", "limits": LIMITS, "settings": SETTINGS}
    with ServerProcess(ServeConfig.model_validate(config)) as server:
        with asyncio.Runner(loop_factory=WallClockLoop) as runner:
            seen = runner.run(churn(server, 60 * asked.minutes, calm_s=30, burst=2000, bursts=3))
        said = server.said()
    asked.out.mkdir(parents=True, exist_ok=True)
    facts = {
        "healthy": healthy(seen),
        "faults": seen.faults,
        "bursts": seen.bursts,
        "memory": memory(seen),
        "send_delay_p99_s": seen.send_delay_p99_s,
        "wrong": wrong(seen),
        "samples": [each._asdict() for each in seen.samples],
        "counters": {name: value for name, value in seen.counters.items() if "_bucket" not in name},
        "server_said": said,
    }
    (asked.out / "churn.json").write_text(json.dumps(facts, indent=1) + "\n")
    show(seen)
    print(f"{asked.out}/churn.json")
    sys.exit(1 if wrong(seen) else 0)


if __name__ == "__main__":
    main()
