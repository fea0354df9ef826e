"""What misbehaving clients cost the others, and what they leave behind.

    python -m tests.selftest.churn --minutes 10

The server has 32 calls at once that talk, listen and interrupt, next to the clients of `tests.selftest.fault_clients`
and their bursts of connections. Between two bursts all calls end and others begin: a call that lasts needs more and
more memory, and that is no leak. It prints a summary. The exit status is 1 when a healthy turn failed, a faulty client
had a wrong answer, or something was left behind.
"""

import argparse
import asyncio
import json
import resource
import sys
import time
import urllib.request
from collections import Counter
from dataclasses import dataclass
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
"""Share of the churn before the growth of memory counts: [chosen] pools and caches fill first."""


class Sample(NamedTuple):
    """The server at `t_s` since the start."""

    t_s: float
    rss_mib: float
    sessions: int
    sockets: int
    replies: int


@dataclass
class Churn:
    """What was seen. `bursts`: begin and end (s since the start) and answers; `faults`: answers by kind of fault."""

    turns: pd.DataFrame
    failures: Counter[str]
    samples: list[Sample]
    calm_s: float
    end_s: float
    bursts: list[tuple[float, float, dict[str, int]]]
    faults: dict[str, dict[str, int]]


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
    samples.append(await _look(server))
    for calls in all_calls:
        calls.log.event(loop.time(), "run_end", -1, -1)
    return Churn(
        turns=pd.concat([calls.turns() for calls in all_calls], ignore_index=True),
        failures=Counter(why for calls in all_calls for why in calls.failures.table()["reason"].to_pylist()),
        samples=samples,
        calm_s=calm_s,
        end_s=end_s,
        bursts=[(line["burst"][0] - origin, line["burst"][1] - origin, line["answers"]) for line in lines[:-1]],
        faults=lines[-1]["faults"],
    )


async def _sample(server: ServerProcess, samples: list[Sample]) -> None:
    """Note the state of the server every `SAMPLE_S`, without end."""
    while True:
        samples.append(await _look(server))
        await asyncio.sleep(SAMPLE_S)


async def _look(server: ServerProcess) -> Sample:
    counters = await asyncio.to_thread(scrape, server.metrics_url)
    names = ("rehearsal_sessions_open", "rehearsal_sockets_open", "rehearsal_replies_under_way")
    rss_mib = psutil.Process(server.pid).memory_info().rss / 2**20
    return Sample(asyncio.get_running_loop().time(), rss_mib, *(int(counters[name]) for name in names))


def scrape(url: str) -> dict[str, float]:
    """Return the values of the metrics page by name and labels, as written there."""
    with urllib.request.urlopen(url, timeout=10) as page:
        lines = page.read().decode().splitlines()
    pairs = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    return {name: float(value) for name, value in pairs}


def healthy(seen: Churn) -> pd.DataFrame:
    """Return P50 and P90 of TTFP (s), turns and failed turns: before the churn, among fault clients, during a burst."""
    turns: Any = seen.turns.assign(failed=seen.turns["status"].isin((FAILED, UNFINISHED)))
    ends, in_burst = turns["turn_end_s"], pd.Series(False, turns.index)
    for begin_s, end_s, _ in seen.bursts:
        in_burst |= ends.between(begin_s, end_s)
    when = np.select([ends < seen.calm_s, in_burst], ["before", "during a burst"], "among fault clients")
    parts = turns.groupby(when)
    times = parts["audio_ttfp_s"].quantile([0.5, 0.9]).unstack()
    return times.assign(turns=parts.size(), failed=parts["failed"].sum())


def wrong(seen: Churn) -> list[str]:
    """What should not have been, in words."""
    found = [f"healthy sessions: {reason}, {count} times" for reason, count in seen.failures.items()]
    if failed := sum(status in (FAILED, UNFINISHED) for status in seen.turns["status"]):
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
    print(healthy(seen).to_string())
    for kind, answers in seen.faults.items():
        print(f"a client that {kind} was answered {answers}")
    for begin_s, end_s, answers in seen.bursts:
        print(f"burst against a cap of {CAP}: {answers}, in {end_s - begin_s:.1f} s")
    warm_s = seen.calm_s + WARM_SHARE * (seen.end_s - seen.calm_s)
    memory = [each.rss_mib for each in seen.samples if each.t_s >= warm_s]
    print(f"memory of the server: {memory[-1]:.0f} MiB at the end, {memory[-1] - memory[0]:+.1f} MiB over the churn")
    for sentence in wrong(seen):
        print(f"WRONG: {sentence}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10, help="of misbehaviour")
    asked = parser.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    config = {"engine": "liveserve", "limits": LIMITS, "settings": SETTINGS}
    with (
        ServerProcess(ServeConfig.model_validate(config)) as server,
        asyncio.Runner(loop_factory=WallClockLoop) as runner,
    ):
        seen = runner.run(churn(server, 60 * asked.minutes, calm_s=30, burst=2000, bursts=3))
    show(seen)
    sys.exit(1 if wrong(seen) else 0)


if __name__ == "__main__":
    main()
