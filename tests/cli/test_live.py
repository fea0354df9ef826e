"""`rehearse live` as a user runs it: every wrong word gets one sentence, and a search ends with an answer."""

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
from harness.experiments.run_order import Outcome
from harness.live.run import live_executor
from harness.live.run import measure_live as live_measure
from harness.live.run.run_progress import RunProgress, ShardProgress, telling
from harness.records.record import InvalidPoint, Measurement, load_record
from reports.cli.live_view import cells, line, live_view, picture
from tests.builders import web_server
from tests.conftest import Rehearse
from tests.reports.lived import live, measured
from tests.reports.page import Page
from workloads.errors import UserError
from workloads.registry import make_trace

pytestmark = [pytest.mark.slow("whole live runs, by script or over sockets"), pytest.mark.usefixtures("unrendered")]

URL = "ws://localhost:8765/v1/realtime"
SMALL = ("--set", "workload=voice", "--set", "turns=1")
LATEST = Path("results/live/localhost-8765/latest")
LOOSE = ("--set", "send_delay_limit_ms=10000")
"""Of who really sends: nothing here is about how late a busy machine does."""


def test_dry_run_names_the_points_and_writes_the_plan_where_it_is_told(rehearse: Rehearse) -> None:
    ask = ("live", URL, *SMALL, "--repeats", "2", "--duration", "10", "--dry-run")
    sweep = (*ask, "--sessions", "2,4")
    status, out, _ = rehearse(*sweep, "--seed", "7")
    *lines, total = out.splitlines()
    assert status == 0 and total == "4 points" and not Path("results").exists()
    labels = [f"endpoint c={c} seed={seed}" for c in (2, 4) for seed in (0, 1)]
    points = planned(rehearse, *sweep[1:], "--seed", "7")
    assert lines == [f"{point.id}  {label}" for point, label in zip(points, labels, strict=True)]
    assert all(point.client_params["stop_after_s"] == 10 for point in points)
    assert all(point.workload_params["network_ms"] == 0 for point in points)
    assert rehearse("run", "planned", "--dry-run")[1] == out
    for to in ("8", "64"):  # a search plans for the same users, however far it may go
        find = ("--find", "ttfp_p90<=1s", "--sessions", "4", "--to", to, "--seed", "7")
        assert rehearse(*ask, *find)[1].splitlines()[:-1] == lines[2:]
    others = rehearse(*sweep)[1]  # drawn anew
    assert others.count("endpoint c=") == 4 and not {*others.split()} & {point.id for point in points}


@pytest.mark.parametrize(("given", "kept"), [((), 5), (("--seed", "0"), 0)])
def test_seed_0_is_kept(rehearse: Rehearse, monkeypatch: pytest.MonkeyPatch, given: tuple[str, ...], kept: int) -> None:
    monkeypatch.setattr("secrets.randbelow", lambda below: 5)
    planned(rehearse, URL, *SMALL, "--sessions", "2", *given)
    assert load_experiment(Path("planned/experiment.json")).set["users_seed"] == kept


TURNS = f"{URL} --workload voice --set turns=1 --duration 10"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (f"{TURNS} --rate 1", [{"rate": 1, "c": None, "sessions": 13}]),
        (f"{TURNS} --rate 1,5", [{"rate": 1}, {"rate": 5}]),
        (f"{TURNS} --rate 5 --sessions 4", [{"rate": 5, "most": 4, "c": None}]),
        ("http://h/v1 --sweep 5 --sessions 64 --repeats 3", [{"c": 1}, {"c": 64}]),
        (f"{URL} --workload metronome --sessions 3 --duration 8", [{"sessions": 3, "duration_s": 8, "c": None}]),
        ("http://h/v1 --duration 4 --set model=tiny", [{"workload": "sharegpt", "modality": "text", "reply": "text"}]),
    ],
)
def test_each_load_is_planned_as_asked(rehearse: Rehearse, arguments: str, expected: list[dict[str, object]]) -> None:
    found = [point.params | {"workload": point.workload} for point in planned(rehearse, *arguments.split())]
    assert [{name: params[name] for name in each} for params, each in zip(found, expected, strict=True)] == expected


def planned(rehearse: Rehearse, *arguments: str) -> Sequence[Any]:
    assert rehearse("live", *arguments, "--out", "planned", "--dry-run")[0] == 0
    return expand(load_experiment(Path("planned/experiment.json")))


def test_workloads_of_an_open_loop_have_their_requests_and_both_classes(rehearse: Rehearse) -> None:
    ask = ("http://h/v1", "--workload", "ramp", "--rate", "1", "--set", "rate_end=20", "--duration", "10")
    assert planned(rehearse, *ask)[0].workload_params["requests"] > 200
    (fast,) = planned(rehearse, *TURNS.split(), "--rate", "5")
    assert fast.workload_params["sessions"] >= 50
    (both,) = planned(rehearse, "http://h/v1", "--workload", "co_serving", "--rate", "2", "--duration", "4")
    assert {"online", "batch"} <= set(both.trace().columns()["request_class"])


@pytest.mark.parametrize("device", ["virtual", "sockets", "cpu"])
def test_a_live_directory_runs_on_no_other_device_without_an_engine(rehearse: Rehearse, device: str) -> None:
    planned(rehearse, URL, *SMALL, "--sessions", "2")
    status, _, err = rehearse("run", "planned", "--device", device, "--dry-run")
    assert status == BAD_INPUT and "--set engine=liveserve" in err and device in err


def test_a_live_directory_runs_in_virtual_time_with_an_engine(rehearse: Rehearse) -> None:
    planned(rehearse, URL, *SMALL, "--sessions", "2")
    status, out, _ = rehearse("run", "planned", "--device", "virtual", "--set", "engine=liveserve", "--dry-run")
    assert status == 0 and "liveserve c=2 seed=0" in out


@pytest.fixture
def answering(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """An endpoint that holds 5 calls, and a generator that is late above 12; returns the numbers asked."""
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
    ask = ("live", URL, *SMALL, "--find", "ttfp_p90<=1.0 failed<=100%", "--to", "32", "--duration", "30")
    status, out, err = rehearse(*ask)
    assert status == 0 and answering == [8] * 3 + [4] * 3 + [6] * 3 + [5] * 3 and "ok in" in err
    said, _, *table = out.splitlines()
    assert said.startswith(f"PASS: {URL} can handle 5 calls: P90 TTFP 510 ms (500–520) ≤ 1,000 ms, failed ")
    assert said.endswith("; at 6 P90 TTFP 2,010 ms (2,000–2,020).")
    rows = [line.split() for line in table]
    steps = {row[0]: row[-1] for row in rows if row and row[0] in ("4", "5", "6", "8")}
    assert steps == {"4": "PASS", "5": "PASS", "6": "FAIL", "8": "FAIL"}
    (found,) = json.loads((LATEST / "search.json").read_text())["searched"]
    assert (found["holds"], found["breaks"]) == (5, 6)
    assert [value for value, _ in found["verdicts"]] == [4, 5, 6, 8]
    assert len(json.loads((LATEST / "summary.json").read_text())) == 12
    assert load_experiment(LATEST / "experiment.json").grid["c"] == [4, 5, 6, 8]

    answering.clear()
    assert rehearse(*ask, "--resume")[1].splitlines()[0] == said and answering == []  # all measured already


def test_a_search_ends_at_its_bound(rehearse: Rehearse, answering: list[int]) -> None:
    ask = ("live", URL, *SMALL, "--find", "failed<=100%", "--sessions", "2", "--to", "4", "--duration", "30")
    status, out, _ = rehearse(*ask)
    assert status == 0 and answering == [2] * 3 + [4] * 3
    assert f"PASS: {URL} can handle at least 4 calls" in out


def test_what_the_generator_cannot_measure_ends_the_search(rehearse: Rehearse, answering: list[int]) -> None:
    status, out, _ = rehearse("live", URL, *SMALL, "--find", "failed<=100%", "--sessions", "12", "--to", "16")
    assert status == 3 and answering == [12] * 3 + [16] * 9
    said = out.splitlines()[0]
    assert said.startswith(f"INCONCLUSIVE: {URL} can handle at least 12 calls, the most that passed: failed ")
    assert said.endswith("at 16 it could not be measured (INVALID: the generator was late).")
    (found,) = json.loads((LATEST / "search.json").read_text())["searched"]
    assert (found["holds"], found["unmeasured"], found["verdict"]) == (12, 16, "INCONCLUSIVE")
    assert said in (LATEST / "report.html").read_text()


def test_a_sweep_keeps_late_measurements_out_of_the_table(rehearse: Rehearse, answering: list[int]) -> None:
    status, out, err = rehearse("live", URL, *SMALL, "--sessions", "4,16", "--slo", "failed<=100%")
    assert out.startswith("INCONCLUSIVE at 16 calls: INVALID: the generator was late; 4: PASS.")
    assert status == 3 and answering == [4, 16]
    assert "0 of 1 INVALID" in out and "INVALID: the generator was late" in out
    assert "[2/2] endpoint c=16 seed=0: failed (INVALID: the generator was late)" in err
    rows = json.loads((LATEST / "summary.json").read_text())
    assert [bool(row["metrics"]) for row in rows] == [True, False]
    assert rehearse("report", str(LATEST))[0] == 0
    status, out, _ = rehearse("compare", str(LATEST), str(LATEST))
    assert status == 0 and "TTFP P90" in out and "failed points: 1 in A, 1 in B" in out


@pytest.mark.parametrize(
    ("slo", "status", "words"),
    [
        ("ttfp_p50<=20s failed<=100%", 0, f": {URL} can handle at least 8 calls, the most that were tried: P50 TTFP "),
        ("ttfp_p50<=1ms", 1, f": {URL} cannot handle 4 calls: P50 TTFP "),
        ("ttfp_p90<=20s failed<=100%", 3, " at 4 calls: 13 turns, 36 needed, failed "),
    ],
)
def test_the_verdict_comes_first_and_is_the_exit_status(
    rehearse: Rehearse, answering: list[int], slo: str, status: int, words: str
) -> None:
    ask = ("live", URL, *SMALL, "--sessions", "4,8", "--slo", slo, "--duration", "20")
    verdict = {0: "PASS", 1: "FAIL", 3: "INCONCLUSIVE"}[status]
    found, out, _ = rehearse(*ask)
    first, *_ = out.splitlines()
    assert found == status and first.startswith(verdict + words)
    assert "--sessions 4,8 --duration 20 --workload voice" in out and "stop_after_s" not in out
    assert first in (LATEST / "report.html").read_text().replace("&lt;", "<")
    assert rehearse("report", str(LATEST))[1].splitlines()[0] == first

    found, out, err = rehearse(*ask, "--json")
    told = json.loads(out)  # stdout is JSON alone
    assert (found, told["verdict"], told["sentence"]) == (status, verdict, first) and "report.html" in err
    assert [load["load"] for load in told["loads"]] == ["4 calls", "8 calls"]
    targets = [target for load in told["loads"] for target in load["targets"]]
    assert all(target["n"] > 0 and target["verdict"] in ("PASS", "FAIL", "INCONCLUSIVE") for target in targets)
    assert [row["settings"]["c"] for row in told["results"]] == [4, 8]


def test_what_nobody_asked_is_judged_by_the_default_of_what_is_served(rehearse: Rehearse, answering: list[int]) -> None:
    told = json.loads(rehearse("live", URL, *SMALL, "--sessions", "4", "--json")[1])
    continuity = ["continuity ≥ 95 %", "cumulative continuity ≥ 95 %"]
    assert told["targets"] == ["P90 TTFP ≤ 800 ms", *continuity, "talked over ≤ 5 %", "failed turns ≤ 1 %"]
    assert not told["targets_given"]
    notes = " ".join(told["notes"])
    assert "is the default for voice" in notes
    assert "--repeats 3 shows that" in notes  # one run cannot say how far runs differ


def broken(request: BaseHTTPRequestHandler) -> None:
    """A server of chat completions that is out of order."""
    request.rfile.read(int(request.headers["Content-Length"]))
    request.send_error(500)


def test_a_server_that_fails_every_turn_keeps_the_columns(rehearse: Rehearse, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_measure, "cached_floor", lambda *_: {})
    one = ("--repeats", "1", "--sessions", "2", *LOOSE)
    with web_server(post=broken) as address:
        status, out, err = rehearse("live", f"http://{address}/v1", "--duration", "2", *one)
        find = ("--find", "ttft_p90<=1", "--duration", "1", "--out", "find")
        searched, answer, _ = rehearse("live", f"http://{address}/v1", *find, *one)
    assert searched == 1 and "cannot handle even 1 user: P90 TTFT ∞, failed turns 100 %." in answer.splitlines()[0]
    found = re.search(r"all (\d+) turns failed \(HTTP status 500\); see the server's log", " ".join(out.split()))
    assert status == 1 and found and "failed (all" in err
    (row,) = [line.split() for line in out.splitlines() if line.strip().startswith("endpoint")]
    assert row[:2] + row[3:5] == ["endpoint", "2", "∞", "∞*"]
    assert row[6:9] == ["–"] * 3  # output, completed, length of replies
    assert row[10:] == ["0", found[1], "0", "of", "1"]
    assert all(heading in out for heading in ("TTFT P50", "TTFT P90", "send delay", "rejected", "failed"))
    (latest,) = Path("results/live").glob("127.0.0.1-*/latest")
    (folder,) = (latest / "points").iterdir()
    assert folder.name.endswith(".failed") and len(load_record(folder).table("requests")) == int(found[1])
    page = Page((latest / "report.html").read_text())
    assert page.section("The load generator")[-1][-2:] == [found[1], "failed"]
    assert page.section("Failures by reason")[1] == ["http 500", found[1]]


BOARD = {"turns": 7, "failed": 1, "shed": 2, "continuity": [3, 4], "send_delay_p99_ms": 0.5, "sent": 10, "came": 6}
BOARD |= {"reply_s": [], "t": 5.0}


def test_the_view_shows_what_matters_and_dashes_for_what_is_not_known() -> None:
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
    text = console.export_text()
    assert "7/8" in text and "endpoint c=8 seed=0" in text
    progress.lose(1)
    assert (cells(progress)["users"], cells(progress)["failed"]) == ("3/8", "6")


def test_an_open_loop_tells_what_is_in_flight_and_sent() -> None:
    progress = RunProgress(37, "endpoint rate=2 seed=0", open_loop=True)
    for shard in range(2):
        progress.update(shard, {**BOARD, "sessions": 1, "ttfp_s": []})
    assert "load: in flight 2, sent 12 of 37, turns 14" in line(progress)


def test_a_run_leads_the_link_to_itself_and_none_that_could_not_begin_does(
    rehearse: Rehearse, answering: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = ("live", URL, *SMALL, "--sessions", "4", "--slo", "failed<=100%")
    for times in (1, 2):  # a finished run is measured again
        assert rehearse(*ask)[0] == 0 and answering == [4] * times
    folders = sorted(path.name for path in LATEST.parent.iterdir() if not path.is_symlink())
    assert len(folders) == 2 and LATEST.readlink() == Path(folders[-1])

    def nobody(*_: object) -> Measurement:
        raise UserError("nothing can be reached")

    monkeypatch.setattr(live_executor, "measure_live", nobody)
    assert rehearse(*ask)[0] == 2 and LATEST.readlink() == Path(folders[-1])
    assert len(list(LATEST.parent.iterdir())) == 3


def test_resuming_continues_the_latest_run_with_its_users(rehearse: Rehearse, answering: list[int]) -> None:
    ask = ("live", URL, *SMALL, "--slo", "failed<=100%", "--sessions", "4,5")
    assert rehearse(*ask)[0] == 0
    seed = load_experiment(LATEST / "experiment.json").set["users_seed"]
    shutil.rmtree(sorted((LATEST / "points").iterdir())[0])
    answering.clear()
    assert rehearse(*ask, "--resume")[0] == 0 and len(answering) == 1
    answering.clear()
    assert rehearse(*ask, "--resume", "--repeats", "2")[0] == 0 and answering == [4, 5]  # adds runs
    assert load_experiment(LATEST / "experiment.json").set["users_seed"] == seed


def test_what_cannot_be_resumed_is_said(rehearse: Rehearse, answering: list[int]) -> None:
    ask = ("live", URL, *SMALL, "--slo", "failed<=100%", "--sessions", "4,5")

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
    frames = ("live", URL, "--workload", "metronome", "--duration", "8", "--out", "frames", "--dry-run")
    assert rehearse(*frames, "--set", "rate=8")[0] == 0
    sentence = "with --sessions 8 --duration 8 --workload metronome --set rate=8 --seed "
    assert sentence in refused(*frames, "--set", "rate=2")
    (LATEST.parent / "away").symlink_to(LATEST.resolve())
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
def test_how_long_it_takes_is_said_before_anybody_calls(rehearse: Rehearse, arguments: str, said: str) -> None:
    status, _, err = rehearse("live", URL, *arguments.split(), "--seed", "1", "--dry-run")
    assert status == 0 and said in err.splitlines()


def progress_of(*logs: pa.Table) -> ShardProgress:
    progress = ShardProgress(make_trace("voice", {"sessions": 2, "turns": 1}, 0))
    for log in logs:
        progress.update(log)
    return progress


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
    told = progress.status(5.0, np.array([0.001, 0.003]))
    assert (told["sessions"], told["turns"], told["failed"], told["ttfp_s"]) == (1, 2, 0, [1.0, 2.0])
    assert told["continuity"] == [1, 2] and told["reply_s"] == [3.0, 3.0] and told["sent"] == 2
    again = progress.status(6.0, np.array([]))
    assert (again["ttfp_s"], again["send_delay_p99_ms"], again["sent"]) == ([], None, 2)


def test_a_shard_counts_the_same_of_the_events_that_tell_it_something() -> None:
    log, none = EventLog(), np.array([])
    for at_s, kind in enumerate(("session_start", "turn_end", "first_text", "text", "text", "turn_done")):
        log.event(float(at_s), kind, 2, 0, value=1.0)
    part = telling(log.events())
    assert part.num_rows == 4
    assert progress_of(part).status(9.0, none) == progress_of(log.events()).status(9.0, none)


def test_a_shard_counts_the_wait_for_a_frame() -> None:
    log = EventLog()
    log.event(2.0, "turn_end", 0, 0, value=0.0)
    log.event(2.25, "frame", 0, 0, value=7)
    assert progress_of(log.events()).status(3.0, np.array([]))["ttfp_s"] == [0.25]


@pytest.mark.parametrize("terminal", [True, False])
def test_each_point_leaves_a_line(terminal: bool, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    point = expand(live(seeds=[0]))[0]
    with live_view(2, 0, Console(force_terminal=terminal, width=100)) as (see, ended):
        see(RunProgress(8, point.label))
        ended(Outcome(point, "ok", tmp_path, 3.0))
        ended(Outcome(point, "failed", tmp_path, 3.0, "INVALID: late"))
    printed = capsys.readouterr().out
    assert f"[1/2] {point.label}: ok in 3 s" in printed
    assert f"[2/2] {point.label}: failed (INVALID: late)" in printed
