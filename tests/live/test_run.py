"""Whole live runs against the null server: their records, and runs that are cut, killed or starved."""

import math
import os
import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from itertools import accumulate, count
from pathlib import Path

import psutil
import pytest
import soundfile

from harness.experiments.run_order import Outcome
from harness.live.endpoints.target import TargetParams
from harness.live.expand import expand
from harness.live.live_experiment import live_experiment
from harness.live.null_server.null_server import NullServer
from harness.live.point import LivePoint
from harness.live.run.live_executor import LiveExecutor
from harness.live.run.preflight import check_answers
from harness.live.run.run_progress import RunProgress
from harness.live.verdict import load_verdict
from harness.metrics.live import LAG, LIVE_DEFINITIONS
from harness.records.record import Record, load_record
from harness.slo.targets import Target
from tests.builders import REHEARSE, say, web_server
from tests.live.conftest import FLOOR
from tests.waiting import wait_until
from workloads.audio.synth import SyntheticClip
from workloads.errors import UserError

pytestmark = [pytest.mark.slow("calls in real time"), pytest.mark.usefixtures("no_floor")]

ROOT = Path(__file__).parents[2]
TOKEN = "a-token-that-nobody-may-see"
LOOSE = {"send_delay_limit_ms": "10000"}  # a stall of a shared machine is no failure
SHORT = {
    "workload": "voice",
    "utterance_s": "0.4",
    "reply_tokens": "4",
    "max_reply_tokens": "6",
    "think_s": "0.1",
    **LOOSE,
}


@pytest.fixture
def null_server(tmp_path: Path) -> Iterator[NullServer]:
    with NullServer("voice", tmp_path) as server:
        yield server


def points(url: str, sessions: tuple[int, ...] = (4,), duration_s: float = 6, **settings: str) -> list[LivePoint]:
    target = {"url": url, "dialect": "rehearsal"}
    return expand(live_experiment(target, {**SHORT, **settings}, dict.fromkeys(sessions, (duration_s, None))))


def measure(
    folder: Path, todo: list[LivePoint], show: Callable[[RunProgress], None] | None = None, timeout_s: float = 60
) -> list[Outcome]:
    folder.mkdir(exist_ok=True)
    return list(LiveExecutor(folder, timeout_s=timeout_s, show=show).run(todo))


def test_a_run_leaves_a_record_of_all_turns_and_no_token(
    null_server: NullServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REHEARSAL_TOKEN", TOKEN)
    states: list[tuple[int, int]] = []
    todo = points(null_server.url, shards="2", scrape="http://127.0.0.1:9/metrics")
    (outcome,) = measure(tmp_path / "points", todo, lambda run: states.append((run.total("sessions"), run.planned)))
    assert (outcome.status, outcome.reason) == ("ok", "")
    assert states[0] == (0, 0)  # it asks the server first
    assert states[1:] and all(0 <= now <= planned == 4 for now, planned in states[1:])
    record = load_record(outcome.folder)
    check_requests(record)
    check_sends(record)
    events = record.table("events")
    kinds = events["kind"].tolist()
    on_line = [*accumulate((kind == "session_start") - (kind == "session_end") for kind in kinds)]
    assert (max(on_line), on_line[-1], kinds[-1]) == (4, 0, "run_end")
    assert events["t"].is_monotonic_increasing
    assert set(LIVE_DEFINITIONS) <= set(record.metrics)
    assert record.metrics["floor_send_delay_p99"]["value"] == 0.001 and record.manifest["cost"]["floor"] == FLOOR
    assert [shard["dialect"] for shard in record.manifest["proof"]["shards"]] == ["rehearsal"] * 2
    scrape = record.table("scrape")
    assert set(scrape.loc[scrape["name"] == "up", "value"]) == {0}  # nobody answers there
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and TOKEN.encode() in path.read_bytes()]


def check_requests(record: Record) -> None:
    """Every turn of 6 s is complete, in its phase, and answered after exactly the 0.2 s of the null server or later."""
    requests, value = record.table("requests"), {name: each["value"] for name, each in record.metrics.items()}
    assert set(requests["status"]) == {"completed"} and all(requests["spoken"])
    assert max(requests["turn_start_s"]) <= 6 and min(requests["audio_ttfp_s"]) >= 0.2
    asked = Counter(requests["phase"])
    assert value["started"] == len(requests) == asked["ramp"] + asked["steady"] + asked["drain"]
    assert record.metrics["audio_ttfp_p50"]["n"] == asked["steady"] >= 2
    assert (value["turns_in_ramp"], value["turns_in_drain"]) == (asked["ramp"], asked["drain"])
    begin_s, end_s = value["steady_begin"], value["steady_end"]
    assert begin_s is not None and end_s is not None and 0 < begin_s < end_s <= 6
    assert all(requests.loc[requests["phase"] == "steady", "turn_end_s"].between(begin_s, end_s))
    assert 3 < (value["on_line_mean"] or 0) <= 4
    assert value["wasted_audio_ratio"] == pytest.approx(0, abs=1e-9) and value["lost_sessions"] == 0


def check_sends(record: Record) -> None:
    """Each turn that was asked is sent in pieces of 20 ms and a commit."""
    requests, sends = record.table("requests"), record.table("sends")
    trace = {(turn.session, turn.turn): turn for session in record.trace().sessions for turn in session.turns}
    turns = [trace[key] for key in zip(requests["session"], requests["turn"], strict=True)]
    sent = Counter(sends["kind"])
    assert sent["audio"] == sum(math.ceil(round((turn.audio_s or 0) / 0.02, 6)) for turn in turns)
    assert sent["commit"] == len(turns)
    assert record.metrics["sends"]["value"] == len(sends)


def test_the_lag_of_a_starved_server_makes_only_a_verdict_invalid_that_it_could_change(
    null_server: NullServer, tmp_path: Path
) -> None:
    polls = count(1)

    def starved(request: BaseHTTPRequestHandler) -> None:
        timers = 100 * next(polls)
        shares = (("0.02", 0.9), ("0.25", 1), ("+Inf", 1))
        say(request, "".join(f'{LAG}_bucket{{le="{le}"}} {share * timers}\n' for le, share in shares))

    with web_server(starved) as address:
        target = points(null_server.url, scrape=f"http://{address}/metrics", send_delay_limit_ms="100")
        (outcome,) = measure(tmp_path / "points", target)
    record = load_record(outcome.folder)
    assert record.metrics["server_lag_p99"]["value"] == pytest.approx(0.227)  # 0.9 of the way from 0.02 to 0.25 s
    ttfp_s = record.metrics["audio_ttfp_mean"]["value"]
    assert outcome.status == "ok" and ttfp_s is not None
    for bound_s, invalid in ((ttfp_s + 1, False), (ttfp_s - 0.1, True)):
        ((judged,), *_) = load_verdict([record], [Target("audio_ttfp_mean", "<=", bound_s)])[1:]
        assert judged.invalid == invalid and ("lagged up to 227 ms" in judged.why) == invalid


def test_stop_after_turns_ends_the_run_after_so_many_judged_turns(null_server: NullServer, tmp_path: Path) -> None:
    todo = points(null_server.url, duration_s=60, stop_after_turns="12", shards="2")
    seen: list[RunProgress] = []
    (outcome,) = measure(tmp_path / "points", todo, seen.append)
    assert outcome.status == "ok" and seen[-1].forecast is not None
    record = load_record(outcome.folder)
    requests = record.table("requests")
    judged = requests.loc[requests["phase"] == "steady"]
    assert len(judged) == 12 and set(judged["status"]) == {"completed"}
    later = requests.loc[requests["phase"] == "drain"]
    # The load went on until they had ended.
    assert min(later["turn_start_s"]) > max(judged["turn_start_s"]) and max(requests["turn_end_s"]) < 30


def test_a_killed_load_generator_loses_its_own_sessions_alone(null_server: NullServer, tmp_path: Path) -> None:
    def kill(progress: RunProgress) -> None:
        if progress.total("turns") >= 4:
            for victim in _shards(index=1):
                victim.kill()

    todo = points(null_server.url, sessions=(6,), duration_s=5, shards="3")
    (outcome,) = measure(tmp_path / "points", todo, kill)
    assert outcome.status == "failed"
    assert "load generator 1 of 3 was killed by SIGKILL" in outcome.reason and outcome.reason.startswith("INVALID")
    record = load_record(outcome.folder)
    requests, failures = record.table("requests"), record.table("failures")
    of_victim = requests["session"] % 3 == 1  # sessions go round
    assert set(requests["status"][~of_victim]) == {"completed"} and len(requests[~of_victim]) > 4
    assert requests["status"][of_victim].tolist().count("failed") == len(failures) > 0
    assert set(failures["reason"]) == {"lost: shard 1 was killed by SIGKILL"}
    counts = [record.metrics[name]["value"] for name in ("lost_sessions", "failed", "unfinished")]
    assert counts == [len(failures), len(failures), 0]
    lost = [shard for shard in record.manifest["proof"]["shards"] if "lost" in shard]
    assert [shard["lost"] for shard in lost] == ["was killed by SIGKILL"]
    wait_until(lambda: not _shards())


def test_a_run_beyond_its_timeout_is_stopped_and_its_open_turns_fail(null_server: NullServer, tmp_path: Path) -> None:
    todo = points(null_server.url, sessions=(2,), duration_s=30, utterance_s="20")
    (outcome,) = measure(tmp_path / "points", todo, timeout_s=8)
    assert outcome.status == "failed" and "took longer than 8 s" in outcome.reason
    requests = load_record(outcome.folder).table("requests")
    assert set(requests["status"]) == {"failed"} and len(requests)
    wait_until(lambda: not _shards())


def test_a_server_that_is_gone_is_a_usage_error_before_the_first_point_and_a_failed_point_after(tmp_path: Path) -> None:
    with NullServer("voice", tmp_path) as server:
        todo = points(server.url, sessions=(1, 2), duration_s=6)
        executor = LiveExecutor(tmp_path, timeout_s=60)
        outcomes = executor.run(todo)
        assert next(outcomes).status == "ok"
    (outcome,) = list(outcomes)
    assert outcome.status == "failed" and "nothing can be reached" in outcome.reason
    with pytest.raises(UserError, match=r"nothing can be reached at ws://127.* \(Connection refused\); start"):
        measure(tmp_path, todo[1:])
    assert not list(tmp_path.glob(".tmp-*"))
    with pytest.raises(UserError, match=r"at ws://nobody\.invalid \("):
        check_answers(TargetParams.model_validate({"url": "ws://nobody.invalid"}))


def test_recordings_are_found_from_any_directory(
    null_server: NullServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("rec").mkdir()
    soundfile.write("rec/a.wav", SyntheticClip(0).pcm(16_000), 16_000)
    target = {"url": null_server.url, "dialect": "rehearsal"}
    called = live_experiment(target, {**LOOSE, "max_reply_tokens": "4"}, {1: (15, None)}, audio=Path("rec"))
    (outcome,) = measure(tmp_path / "points", expand(called))
    assert (outcome.status, outcome.reason) == ("ok", "")


def test_ctrl_c_keeps_the_finished_points_and_ends_all_load_generators(null_server: NullServer, tmp_path: Path) -> None:
    options = [f"--set={name}={value}" for name, value in SHORT.items()]
    command = [*REHEARSE, "live", null_server.url, "--seed", "0"]
    command += [*options, "--sessions", "1,2", "--duration", "6", "--out", str(tmp_path / "out")]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(command, env=env, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    lines = []
    for line in process.stderr:
        lines.append(line)
        if line.startswith("[1/2]") and lines.count(line) == 1:  # an interrupted write may print a line again
            process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130, lines
    assert lines[-1].startswith("Stopped with 1 of 2 points finished; run the same command again with --resume to")
    folders = [path.name for path in (tmp_path / "out" / "points").iterdir()]
    assert len(folders) == 1 and not folders[0].endswith(".failed")
    assert load_record(tmp_path / "out" / "points" / folders[0]).manifest["status"] == "ok"
    wait_until(lambda: not _shards())


def _shards(index: int | None = None) -> list[psutil.Process]:
    """Load generators of ours that still run."""
    processes = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            line = process.cmdline()
            if "harness.live.run.load_generator" in line and (index is None or line[-1] == str(index)):
                processes.append(process)
    return processes
