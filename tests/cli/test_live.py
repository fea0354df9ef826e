"""`rehearse live`: plans, searches, verdicts and the view of a run; a scripted endpoint measures."""

import io
import json
import re
import shutil
from collections.abc import Sequence
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from rich.console import Console

from harness.by_device import expand
from harness.events.log import EventLog
from harness.exit_status import BAD_INPUT
from harness.experiments.experiment import load_experiment
from harness.experiments.point import Point
from harness.live.run import live_executor
from harness.live.run import measure_live as live_measure
from harness.live.run.run_progress import RunProgress, ShardProgress, telling
from harness.records.record import InvalidPoint, Measurement, load_record
from reports.cli.live_view import cells, line, picture
from tests.builders import web_server
from tests.conftest import Rehearse
from tests.reports.lived import measured
from tests.reports.page import Page
from workloads.errors import UserError
from workloads.registry import make_trace

pytestmark = [pytest.mark.slow("whole live runs, by script or over sockets"), pytest.mark.usefixtures("unrendered")]

URL = "ws://localhost:8765/v1/realtime"
VOICE = ("live", URL, "--set", "workload=voice", "--set", "turns=1")
LATEST = Path("results/live/localhost-8765/latest")


def planned(rehearse: Rehearse, *arguments: str) -> Sequence[Any]:
    """Return the points that `rehearse live` plans, and leave their experiment in the folder `planned`."""
    assert rehearse(*arguments, "--out", "planned", "--dry-run")[0] == 0
    return expand(load_experiment(Path("planned/experiment.json")))


def test_a_dry_run_lists_the_points_and_writes_the_plan_to_out_alone(rehearse: Rehearse) -> None:
    ask = (*VOICE, "--sessions", "2,4", "--repeats", "2", "--duration", "10", "--seed", "7")
    status, out, _ = rehearse(*ask, "--dry-run")
    assert status == 0 and not Path("results").exists()
    points = planned(rehearse, *ask)
    labels = [f"endpoint c={c} seed={seed}" for c in (2, 4) for seed in (0, 1)]
    lines = [f"{point.id}  {label}" for point, label in zip(points, labels, strict=True)]
    assert out.splitlines() == [*lines, "4 points"]
    assert {point.client_params["stop_after_s"] for point in points} == {10}
    assert {point.workload_params["network_ms"] for point in points} == {0}
    assert rehearse("run", "planned", "--dry-run")[1] == out


@pytest.mark.parametrize(("given", "kept"), [((), 5), (("--seed", "0"), 0)])
def test_seed_0_is_kept(rehearse: Rehearse, monkeypatch: pytest.MonkeyPatch, given: tuple[str, ...], kept: int) -> None:
    monkeypatch.setattr("secrets.randbelow", lambda below: 5)
    planned(rehearse, *VOICE, "--sessions", "2", *given)
    assert load_experiment(Path("planned/experiment.json")).set["users_seed"] == kept


TURNS = f"live {URL} --workload voice --set turns=1 --duration 10"


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (f"{TURNS} --rate 1", [{"rate": 1, "c": None, "sessions": 13}]),
        (f"{TURNS} --rate 1,5", [{"rate": 1}, {"rate": 5}]),
        (f"{TURNS} --rate 5 --sessions 4", [{"rate": 5, "most": 4, "c": None}]),
        ("live http://h/v1 --sweep 5 --sessions 64 --repeats 3", [{"c": 1}, {"c": 64}]),
        (f"live {URL} --workload metronome --sessions 3 --duration 8", [{"sessions": 3, "duration_s": 8, "c": None}]),
        ("live http://h/v1 --duration 4 --set model=tiny", [{"modality": "text", "reply": "text"}]),
    ],
)
def test_each_load_is_planned_as_asked(rehearse: Rehearse, command: str, expected: list[dict[str, object]]) -> None:
    points = planned(rehearse, *command.split())
    chosen = [{name: point.params[name] for name in each} for point, each in zip(points, expected, strict=True)]
    assert chosen == expected


def test_an_open_loop_has_the_requests_of_its_whole_duration(rehearse: Rehearse) -> None:
    # From 1 to 20 a second, 10 s: about 105 of the ramp and 20 a second afterwards
    ramp = "live http://h/v1 --workload ramp --rate 1 --set rate_end=20 --duration 10"
    assert planned(rehearse, *ramp.split())[0].workload_params["requests"] > 200
    (steady,) = planned(rehearse, *TURNS.split(), "--rate", "5")
    assert steady.workload_params["sessions"] >= 5 * 10
    both = "live http://h/v1 --workload co_serving --rate 2 --duration 4"
    assert {"online", "batch"} <= set(planned(rehearse, *both.split())[0].trace().columns()["request_class"])


def test_a_live_directory_runs_on_another_device_with_an_engine_alone(rehearse: Rehearse) -> None:
    planned(rehearse, *VOICE, "--sessions", "2")
    ask = ("run", "planned", "--device", "virtual", "--dry-run")
    status, _, err = rehearse(*ask)
    assert status == BAD_INPUT and "--set engine=liveserve" in err and "virtual" in err
    status, out, _ = rehearse(*ask, "--set", "engine=liveserve")
    assert status == 0 and "liveserve c=2 seed=0" in out


@pytest.fixture
def answering(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """An endpoint with a TTFP of 0.5 s for up to 5 calls and of 2 s for more, and a generator that is late above 12
    calls; returns the numbers of calls that were measured, one for each run."""
    asked: list[int] = []

    def measure(point: Point, show: object, timeout_s: float, say: object) -> Measurement:
        c = point.params["c"]
        assert isinstance(c, int)
        asked.append(c)
        found = measured(point)
        value = (0.5 if c <= 5 else 2.0) + point.seed / 100
        found.metrics["audio_ttfp_p90"] = {"value": value, "unit": "s", "n": 9, "missing": 0}
        answered = {"audio_ttfp_s": value, "spoken": True, "status": "completed", "packets": 1}
        found = replace(found, requests=found.requests.assign(**answered))
        if c > 12:
            raise InvalidPoint("the generator was late", found)
        return found

    monkeypatch.setattr(live_executor, "measure_live", measure)
    return asked


def test_the_capacity_is_found_with_repeats_and_kept(rehearse: Rehearse, answering: list[int]) -> None:
    ask = (*VOICE, "--find", "ttfp_p90<=1.0 failed<=100%", "--to", "32", "--duration", "30")
    status, out, _ = rehearse(*ask)
    assert status == 0 and answering == [8] * 3 + [4] * 3 + [6] * 3 + [5] * 3
    sentence, *_ = out.splitlines()
    assert sentence.startswith(f"PASS: {URL} can handle 5 calls: P90 TTFP 510 ms (500–520) ≤ 1,000 ms, failed ")
    assert sentence.endswith("; at 6 P90 TTFP 2,010 ms (2,000–2,020).")
    rows = [line.split() for line in out.splitlines()]
    verdicts = {row[0]: row[-1] for row in rows if row and row[0] in ("4", "5", "6", "8")}
    assert verdicts == {"4": "PASS", "5": "PASS", "6": "FAIL", "8": "FAIL"}
    (found,) = json.loads((LATEST / "search.json").read_text())["searched"]
    assert (found["holds"], found["breaks"]) == (5, 6)
    assert load_experiment(LATEST / "experiment.json").grid["c"] == [4, 5, 6, 8]

    answering.clear()
    assert rehearse(*ask, "--resume")[1].splitlines()[0] == sentence
    assert answering == []  # all runs were measured already


def test_a_load_that_the_generator_cannot_measure_ends_the_search(rehearse: Rehearse, answering: list[int]) -> None:
    status, out, _ = rehearse(*VOICE, "--find", "failed<=100%", "--sessions", "12", "--to", "16")
    assert status == 3 and answering == [12] * 3 + [16] * 9
    sentence = out.splitlines()[0]
    assert sentence.startswith(f"INCONCLUSIVE: {URL} can handle at least 12 calls, the most that passed: failed ")
    assert sentence.endswith("at 16 it could not be measured (INVALID: the generator was late).")
    (found,) = json.loads((LATEST / "search.json").read_text())["searched"]
    assert (found["holds"], found["unmeasured"], found["verdict"]) == (12, 16, "INCONCLUSIVE")
    assert sentence in (LATEST / "report.html").read_text()


def test_a_sweep_keeps_late_measurements_out_of_the_table(rehearse: Rehearse, answering: list[int]) -> None:
    status, out, err = rehearse(*VOICE, "--sessions", "4,16", "--slo", "failed<=100%")
    assert out.startswith("INCONCLUSIVE at 16 calls: INVALID: the generator was late; 4: PASS.")
    assert status == 3 and "0 of 1 INVALID" in out
    assert "[1/2] endpoint c=4 seed=0: ok in " in err
    assert "[2/2] endpoint c=16 seed=0: failed (INVALID: the generator was late)" in err
    rows = json.loads((LATEST / "summary.json").read_text())
    assert [bool(row["metrics"]) for row in rows] == [True, False]
    status, out, _ = rehearse("compare", str(LATEST), str(LATEST))
    assert status == 0 and "failed points: 1 in A, 1 in B" in out


@pytest.mark.parametrize(
    ("slo", "status", "first"),
    [
        ("ttfp_p50<=20s failed<=100%", 0, f"PASS: {URL} can handle at least 8 calls, the most that were tried: P50 "),
        ("ttfp_p50<=1ms", 1, f"FAIL: {URL} cannot handle 4 calls: P50 TTFP "),
        ("ttfp_p90<=20s failed<=100%", 3, "INCONCLUSIVE at 4 calls: 13 turns, 36 needed, failed "),
    ],
)
def test_a_verdict_is_the_exit_status(
    rehearse: Rehearse, answering: list[int], slo: str, status: int, first: str
) -> None:
    ask = (*VOICE, "--sessions", "4,8", "--slo", slo, "--duration", "20")
    found, out, _ = rehearse(*ask)
    sentence, *_ = out.splitlines()
    assert found == status and sentence.startswith(first)
    assert "--sessions 4,8 --duration 20 --workload voice" in out  # how to repeat it
    assert sentence in (LATEST / "report.html").read_text().replace("&lt;", "<")
    assert rehearse("report", str(LATEST))[1].splitlines()[0] == sentence

    found, out, err = rehearse(*ask, "--json")
    as_json = json.loads(out)  # stdout is JSON alone
    assert "report.html" in err
    assert (found, as_json["verdict"], as_json["sentence"]) == (status, first.split()[0].strip(":"), sentence)
    assert [load["load"] for load in as_json["loads"]] == ["4 calls", "8 calls"]
    assert [row["settings"]["c"] for row in as_json["results"]] == [4, 8]


def broken(request: BaseHTTPRequestHandler) -> None:
    """A server of chat completions that is out of order."""
    request.rfile.read(int(request.headers["Content-Length"]))
    request.send_error(500)


def test_a_server_that_fails_every_turn_fails(rehearse: Rehearse, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_measure, "cached_floor", lambda *_: {})
    options = ("--repeats", "1", "--sessions", "2", "--set", "send_delay_limit_ms=10000")  # a busy machine is late
    with web_server(post=broken) as address:
        status, out, _ = rehearse("live", f"http://{address}/v1", "--duration", "2", *options)
        find = ("--find", "ttft_p90<=1", "--duration", "1", "--out", "find")
        searched, answer, _ = rehearse("live", f"http://{address}/v1", *find, *options)
    assert searched == 1 and "cannot handle even 1 user: P90 TTFT ∞, failed turns 100 %." in answer.splitlines()[0]
    found = re.search(r"all (\d+) turns failed \(HTTP status 500\); see the server's log", " ".join(out.split()))
    assert status == 1 and found
    assert all(heading in out for heading in ("TTFT P50", "TTFT P90", "send delay", "rejected", "failed"))
    (latest,) = Path("results/live").glob("127.0.0.1-*/latest")
    (folder,) = (latest / "points").iterdir()
    assert folder.name.endswith(".failed") and len(load_record(folder).table("requests")) == int(found[1])
    assert Page((latest / "report.html").read_text()).section("Failures by reason")[1] == ["http 500", found[1]]


BOARD = {"turns": 7, "failed": 1, "shed": 2, "continuity": [3, 4], "send_delay_p99_ms": 0.5, "sent": 10, "came": 6}
BOARD |= {"reply_s": [], "t": 5.0}
"""What a shard of the load generator reports every moment."""


def test_the_view_adds_the_shards_and_shows_dashes_before_they_report() -> None:
    progress = RunProgress(8, "endpoint c=8 seed=0")
    assert [cells(progress)[name] for name in ("TTFP P50", "continuity", "send delay P99")] == ["–"] * 3
    progress.update(0, {**BOARD, "sessions": 3, "ttfp_s": [9.0]})
    progress.update(1, {**BOARD, "t": 15.5, "sessions": 4, "ttfp_s": [0.2, 0.4], "send_delay_p99_ms": 2.5})
    shown = cells(progress)
    assert (shown["users"], shown["turns"], shown["rejected"]) == ("7/8", "14", "4")
    assert shown["TTFP P50"] == "300 ms"  # the packet of ten seconds ago is forgotten
    assert (shown["continuity"], shown["send delay P99"]) == ("75.0 %", "2.50 ms")
    assert line(progress).startswith("endpoint c=8 seed=0: 16 s, load: users 7/8, turns 14, TTFP P50 300 ms")
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(picture(progress))
    assert "7/8" in console.export_text()
    progress.lose(1)
    assert (cells(progress)["users"], cells(progress)["failed"]) == ("3/8", "6")


def test_latest_links_to_the_last_run(
    rehearse: Rehearse, answering: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = (*VOICE, "--sessions", "4", "--slo", "failed<=100%")
    for times in (1, 2):  # a finished run is measured again
        assert rehearse(*ask)[0] == 0 and answering == [4] * times
    folders = sorted(path.name for path in LATEST.parent.iterdir() if not path.is_symlink())
    assert len(folders) == 2 and LATEST.readlink() == Path(folders[-1])

    def unreachable(*_: object) -> Measurement:
        raise UserError("nothing can be reached")

    monkeypatch.setattr(live_executor, "measure_live", unreachable)
    assert rehearse(*ask)[0] == 2 and LATEST.readlink() == Path(folders[-1])
    assert len(list(LATEST.parent.iterdir())) == 3


def test_resuming_continues_the_latest_run_with_its_users(rehearse: Rehearse, answering: list[int]) -> None:
    ask = (*VOICE, "--slo", "failed<=100%", "--sessions", "4,5")
    assert rehearse(*ask)[0] == 0
    seed = load_experiment(LATEST / "experiment.json").set["users_seed"]
    shutil.rmtree(sorted((LATEST / "points").iterdir())[0])
    answering.clear()
    assert rehearse(*ask, "--resume")[0] == 0 and len(answering) == 1
    answering.clear()
    assert rehearse(*ask, "--resume", "--repeats", "2")[0] == 0 and answering == [4, 5]  # one more run each
    assert load_experiment(LATEST / "experiment.json").set["users_seed"] == seed


def test_a_run_that_cannot_be_resumed_is_refused_with_the_reason(rehearse: Rehearse, answering: list[int]) -> None:
    ask = (*VOICE, "--slo", "failed<=100%", "--sessions", "4,5")

    def refused(*arguments: str) -> str:
        status, _, err = rehearse(*arguments, "--resume")
        assert status == 2
        return err

    assert f"there is no run of {URL} in results/live" in refused(*ask)
    rehearse(*ask)
    seed = load_experiment(LATEST / "experiment.json").set["users_seed"]
    assert "is finished, with 2 of 2 points measured" in refused(*ask)
    assert "was measured with --sessions 4,5 --duration 30" in refused(*ask, "--sessions", "4")
    assert f"--seed {seed}" in refused(*ask, "--seed", "1")
    LATEST.unlink()
    LATEST.symlink_to("../elsewhere")
    assert "there is no run" in refused(*ask)


SHARES = "continuity ≥ 95 %, cumulative continuity ≥ 95 % and talked over ≤ 5 %"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("--sessions 8", "8 calls: about 20 turns per minute, 111 judged: at most 5 min 45 s"),
        ("--sessions 8 --repeats 4", "8 calls: about 21 turns per minute, 28 judged: 4 runs of at most 1 min 30 s"),
        (
            "--sessions 1",
            "1 call: about 2 turns per minute, 111 judged: at most 8 min, which is the limit and leaves "
            f"P90 TTFP ≤ 800 ms, {SHARES} undecided; --duration 2600 is long enough",
        ),
        (
            "--sessions 8 --duration 60",
            "--duration 60 is too short for 8 calls: about 20 turns, 73 needed to decide P90 TTFP ≤ 800 ms, "
            f"{SHARES}; --duration 225 is long enough.",
        ),
        (
            "--sessions 64 --slo continuity>=100%",
            "64 calls: no number of turns can show continuity ≥ 100 %; give a target that leaves room.",
        ),
    ],
)
def test_the_length_of_a_run_is_said_before_anybody_calls(rehearse: Rehearse, arguments: str, said: str) -> None:
    status, _, err = rehearse("live", URL, *arguments.split(), "--seed", "1", "--dry-run")
    assert status == 0 and said in err.splitlines()


def progress_of(*logs: pa.Table) -> ShardProgress:
    progress = ShardProgress(make_trace("voice", {"sessions": 2, "turns": 1}, 0))
    for log in logs:
        progress.update(log)
    return progress


NO_SENDS = np.array([])


def test_a_shard_counts_what_its_log_says() -> None:
    log = EventLog()
    for session, first_s, gap_s in ((0, 2.0, 0.9), (1, 3.0, 0.2)):
        log.event(0.0, "session_start", session, 0)
        log.event(1.0, "turn_end", session, 0, value=0.0)
        log.event(first_s, "audio", session, 0, value=0.5)
        log.event(first_s + gap_s, "audio", session, 0, value=0.5)
        log.event(4.0, "turn_done", session, 0)
    log.event(4.0, "session_end", 0, 0)
    progress = progress_of(log.events().slice(0, 4), log.events().slice(4))
    counted = progress.status(5.0, np.array([0.001, 0.003]))
    assert (counted["sessions"], counted["turns"], counted["failed"], counted["sent"]) == (1, 2, 0, 2)
    assert counted["ttfp_s"] == [1.0, 2.0]
    assert counted["continuity"] == [1, 2]  # a gap of 0.9 s after 0.5 s of sound is heard, one of 0.2 s is not
    assert counted["reply_s"] == [3.0, 3.0]
    again = progress.status(6.0, NO_SENDS)
    assert (again["ttfp_s"], again["send_delay_p99_ms"], again["sent"]) == ([], None, 2)


def test_a_shard_counts_the_same_without_the_events_that_change_no_number() -> None:
    log = EventLog()
    for at_s, kind in enumerate(("session_start", "turn_end", "first_text", "text", "text", "turn_done")):
        log.event(float(at_s), kind, 2, 0, value=1.0)
    part = telling(log.events())
    assert part.num_rows == 4
    assert progress_of(part).status(9.0, NO_SENDS) == progress_of(log.events()).status(9.0, NO_SENDS)
