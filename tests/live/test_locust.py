"""A schedule played by a Locust master and three workers, each a process, over loopback."""

import asyncio
import json
import signal
import subprocess
import sys
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import soundfile

from harness.client.client_params import ClientParams
from harness.exit_status import UNDECIDED
from harness.experiments.experiment import Experiment
from harness.live.endpoints.target import TargetParams
from harness.live.expand import expand
from harness.live.null_server.null_server import NullServer
from harness.live.point import LivePoint
from harness.live.run.launch import play_plan
from harness.live.run.plan import Merged, pack_shard, recordings_of, shard_trace, unpack_shard, write_plan
from harness.live.run.run_progress import RunProgress
from harness.records import results
from harness.records.record import Record, load_record
from tests.builders import free_ports
from tests.waiting import wait_until
from workloads.audio.synth import SyntheticClip
from workloads.generators.content import pcm_for
from workloads.registry import make_trace
from workloads.trace import Trace

pytestmark = pytest.mark.slow("starts Locust and its workers")

ROOT = Path(__file__).parents[2]
WORKERS = 3
CALLS = 12
"""Each has one turn."""
LONGEST_S = 240.0
"""A crew that takes longer has come to a standstill."""
LOCUST = [sys.executable, "-m", "locust", "-f", "harness/live/locust/locustfile.py"]


def experiment(url: str) -> Experiment:
    """The calls within some seconds, twice: with seeds 0 and 1."""
    calls = {"sessions": CALLS, "turns": 1, "rate": 2.5, "p": 0, "network_ms": 0}
    replies = {"reply_tokens": 20, "max_reply_tokens": 30}
    limit = {"send_delay_limit_ms": 1000}  # the machine may be busy with other tests
    settings = {"url": url, "dialect": "rehearsal", **calls, **replies, **limit}
    return Experiment(name="crew", engines=["endpoint"], workload="speech", device="live", set=settings, seeds=[0, 1])


class Crew:
    """Master and workers, and what Locust's web page says."""

    def __init__(self, folder: Path, out: Path) -> None:
        port, page = free_ports(2)
        self._web = f"http://127.0.0.1:{page}"
        self.logs = [folder / f"{who}.log" for who in ("master", *range(WORKERS))]
        master = ["--master", "--master-bind-port", str(port), "--expect-workers", str(WORKERS)]
        master += ["--web-host", "127.0.0.1", "--web-port", str(page), "--rehearsal", str(out)]
        commands = [[*LOCUST, *master]] + [[*LOCUST, "--worker", "--master-port", str(port)]] * WORKERS
        self._processes = [
            subprocess.Popen(command, cwd=ROOT, stdout=log.open("w"), stderr=subprocess.STDOUT)
            for command, log in zip(commands, self.logs, strict=True)
        ]

    def asked(self, path: str, **form: Any) -> dict[str, Any]:
        data = urllib.parse.urlencode(form).encode() if form else None
        with urllib.request.urlopen(f"{self._web}/{path}", data, timeout=30) as answer:
            return json.load(answer)

    def until(self, true: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The page's statistics as soon as they are `true`."""

        def seen() -> dict[str, Any] | None:
            assert self._processes[0].poll() is None, self.tails()
            with suppress(OSError):
                stats = self.asked("stats/requests")
                if true(stats):
                    return stats
            return None

        return wait_until(seen, LONGEST_S)

    def kill_a_worker(self) -> None:
        self._processes[-1].send_signal(signal.SIGKILL)

    def tails(self) -> str:
        return "\n".join(log.read_text(errors="replace")[-4000:] for log in self.logs)

    def end(self) -> list[int]:
        """Exit statuses, of the master first."""
        self._processes[0].terminate()
        try:
            return [process.wait(60) for process in self._processes]
        finally:
            for process in self._processes:
                process.kill()
                process.wait()


@dataclass
class Seen:
    points: list[LivePoint]
    whole: Record
    short: Record
    """Of the run during which a worker was killed."""
    alone: Merged
    """The first point, played by one process."""
    statuses: list[int]
    logs: str


def measured(stats: dict[str, Any]) -> int:
    """The calls of whose first packet Locust's page shows the time."""
    return sum(row["num_requests"] for row in stats["stats"] if row["name"] == "time to first packet")


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    folder = tmp_path_factory.mktemp("crew")
    out = folder / "results"
    with NullServer("voice", folder) as server:
        asked = experiment(server.url)
        points = expand(asked)
        with results.claim(out, asked) as points_dir:
            pass
        alone = play_alone(folder / "alone", points[0])
        crew = Crew(folder, out)
        try:
            crew.until(lambda stats: len(stats["workers"]) == WORKERS)
            crew.asked("swarm", user_count=1, spawn_rate=1)
            crew.until(lambda _: bool(finished(points_dir)))
            crew.until(lambda stats: measured(stats) > CALLS)
            crew.kill_a_worker()
            crew.until(lambda stats: stats["state"] != "running")
        finally:
            statuses = crew.end()
    whole, short = sorted(finished(points_dir), key=lambda record: record.point.seed)
    yield Seen(points, whole, short, alone, statuses, crew.tails())


def finished(points_dir: Path) -> list[Record]:
    """By what they are, not by their ids: those cover the program too, and somebody may be at work on it."""
    return [load_record(folder) for folder in points_dir.iterdir() if not folder.name.startswith(".tmp")]


def play_alone(folder: Path, point: LivePoint) -> Merged:
    plan = write_plan(folder, point.trace(), point.setup.target, point.setup.client)
    assert plan.shards == 1
    return asyncio.run(play_plan(folder, plan, RunProgress(1), None, LONGEST_S)).merged


def acts(events: pd.DataFrame) -> list[tuple[Any, ...]]:
    """What users do at scheduled times."""
    kept = events[events["kind"].isin(["turn_start", "turn_end"])]
    return sorted(zip(*(kept[name] for name in ("t", "kind", "session", "turn")), strict=True))


def scheduled(sends: pd.DataFrame) -> list[tuple[Any, ...]]:
    """Sound and ends of turns, which are due when the schedule says."""
    kept = sends[sends["kind"].isin(["audio", "commit"])]
    return sorted(zip(*(kept[name] for name in ("due_s", "session", "kind")), strict=True))


def test_a_crew_sends_the_same_at_the_same_times_as_one_process(seen: Seen):
    assert acts(seen.whole.table("events")) == acts(seen.alone.events.to_pandas())
    assert scheduled(seen.whole.table("sends")) == scheduled(seen.alone.sends.to_pandas())
    arrivals = sorted(session.turns[0].arrival_s or 0.0 for session in seen.points[0].trace().sessions)
    begun = seen.whole.table("requests").sort_values("turn_start_s")["turn_start_s"]
    assert begun.tolist() == arrivals


def test_the_record_merged_from_all_workers_has_every_call_of_the_schedule(seen: Seen):
    record = seen.whole
    assert record.manifest["status"] == "ok"
    assert record.trace().header.hash == seen.points[0].trace_hash
    assert record.table("requests")["status"].tolist() == ["completed"] * CALLS
    counts = {name: record.metrics[name]["value"] for name in ("started", "failed", "lost_sessions")}
    assert counts == {"started": CALLS, "failed": 0, "lost_sessions": 0}
    assert sum(shard["sessions"] for shard in record.manifest["proof"]["shards"]) == CALLS


def test_the_merged_record_states_the_clock_offset_of_each_worker(seen: Seen):
    cost = seen.whole.manifest["cost"]
    assert cost["floor"]["sends"] > 0
    assert len({host["worker"] for host in cost["hosts"]}) == WORKERS
    for host in cost["hosts"]:
        # All workers read the clock of this machine: the true offset is 0, and the stated error covers it.
        assert abs(host["offset_s"]) <= host["error_s"] < 1


def test_the_calls_of_a_worker_that_dies_fail_and_the_run_is_invalid(seen: Seen):
    manifest, failures = seen.short.manifest, seen.short.table("failures")
    assert manifest["status"] == "failed"
    assert manifest["error"].startswith("INVALID: load generator")
    assert "went with its Locust worker" in manifest["error"]
    assert failures["reason"].str.startswith("lost: shard").all()
    requests, gone = seen.short.table("requests"), set(failures["session"])
    lost = requests["session"].isin(list(gone))
    assert set(requests["status"][lost]) == {"failed"}
    assert set(requests["status"][~lost]) == {"completed"}
    assert len(requests) >= CALLS - CALLS // WORKERS + len(gone), "the other workers' calls are all there"
    assert seen.statuses[0] == UNDECIDED, seen.logs


def sent(folder: Path, trace: Trace, url: str) -> tuple[Trace, dict[str, Any]]:
    """The second shard of two, and the message with all that its worker needs."""
    target = TargetParams.model_validate({"url": url, "shards": 2})
    write_plan(folder, trace, target, ClientParams.model_validate({}))
    return shard_trace(folder, 1), pack_shard(folder, 1, recordings_of(trace))


def sounds(trace: Trace) -> list[bytes]:
    return [b"".join(pcm_for(trace, turn)) for session in trace.sessions for turn in session.turns]


def test_recordings_travel_with_the_schedule(tmp_path: Path):
    here = tmp_path / "here"
    (here / "deeper").mkdir(parents=True)
    for i, name in enumerate(("a.wav", "deeper/b.wav", "deeper/c.wav")):
        soundfile.write(here / name, SyntheticClip(i).pcm(16_000), 16_000)
    trace = make_trace("speech", {"sessions": 4, "turns": 2, "path": str(here)}, 0)
    shard, message = sent(tmp_path / "plan", trace, "ws://localhost:1")
    expected = sounds(shard)
    here.rename(tmp_path / "elsewhere")
    unpack_shard(tmp_path / "there", message)
    assert expected
    assert sounds(shard_trace(tmp_path / "there", 1)) == expected


@pytest.mark.parametrize(
    ("options", "sentence"),
    [(["--master", "--headless"], "needs --rehearsal DIR"), (["--headless"], "start it with --master or --worker")],
)
def test_a_missing_option_is_a_usage_error(options: list[str], sentence: str):
    command = [*LOCUST, *options, "--master-bind-port", str(*free_ports(1))]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr
