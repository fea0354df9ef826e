import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from harness.by_device import expand
from harness.experiments.experiment import Experiment
from harness.experiments.point import Point
from harness.records.record import load_record
from harness.records.results import claim, write_summary
from harness.slo.search import load_searches
from harness.slo.targets import parse_targets
from reports.cli import find as command
from reports.replays.usage import usage
from tests.builders import REHEARSE, refused, settings
from tests.conftest import Rehearse
from tests.reports import served
from tests.reports.page import Page
from tests.reports.written import write_points

pytestmark = pytest.mark.usefixtures("unrendered")

# With the scripted servers vllm_omni sends the second packet of every other session late from c = 16 on.
FIND = ("find", "bench", "--slo", "ttfp_p90<=0.5 continuity>=0.9", "--set", "p=0")
SMALL = (*FIND, "--set", "turns=1", "--set", "sessions=48", "--seeds", "2")


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[list[Point]]]:
    """Serves points by script, except those that `fails` names; returns the points of each round."""

    def fake(fails: Callable[[Point], bool] = lambda point: False) -> list[list[Point]]:
        rounds: list[list[Point]] = []

        def measure_points(owner, points, out, workers, before) -> bool:
            assert workers.place.local
            rounds.append(points)
            with claim(out, owner) as points_dir:
                write_points(points_dir, points, served.measure, fails)
                write_summary(out, [*before, *(point.id for point in points)])
            return any(map(fails, points))

        monkeypatch.setattr(command, "measure_points", measure_points)
        return rounds

    return fake


def test_it_finds_where_an_engine_breaks_and_where_it_does_not(rehearse: Rehearse, fake: Callable) -> None:
    rounds = fake()
    status, out, err = rehearse(*SMALL, "--jobs", "4", "--json")
    assert (status, err.splitlines()) == (0, ["results/bench-find/search.json", "results/bench-find/report.html"])
    found = {row["engine"]: row for row in json.loads(out)["found"]}
    assert found["vllm_omni"]["c"] == 15
    assert found["vllm_omni"]["over_seeds"] == dict.fromkeys(("low", "middle", "high"), 15)
    # Half of the 48 sessions is the most that is tried: of more callers hardly ever all are connected.
    assert found["liveserve"]["c"] == 24 and found["liveserve"]["at_least"]
    # vllm_omni: 8, 16, 12, 14, 15; liveserve: 8, 16, 24. Both engines and both seeds are measured in the same round,
    # and 15 by the two idle workers while 14 is decided.
    tried = [sorted({point.params["c"] for point in points}) for points in rounds]
    assert tried == [[8], [16], [12, 24], [14, 15]] and len(rounds[0]) == 4
    status, again, _ = rehearse(*SMALL, "--json")
    assert status == 0 and json.loads(again) == json.loads(out)


@pytest.mark.slow("measures and draws whole searches")
def test_the_report_has_the_answer_of_each_engine_and_gpu(rehearse: Rehearse, fake: Callable) -> None:
    fake()
    _, out, _ = rehearse(*SMALL, "--set", "gpu=h100,h200", "--set", "engine=vllm_omni")
    assert "vllm_omni gpu=h200 can handle c=15: P90 TTFP 300 ms (300–300) ≤ 500 ms, continuity 100 %" in out
    assert "; at 16 continuity 40 %" in out
    text = Path("results/bench-find/report.html").read_text()
    assert "these hold: vllm_omni gpu=h100 c=15, vllm_omni gpu=h200 c=15 (every one of 2 seeds)." in text
    (head, first, second) = Page(text).section("The largest c")[:3]
    assert head[:3] == ["engine", "hardware", "c | seeds"] and first[1] == "h100" and second[1] == "h200"
    assert Path("results/bench-find/figures/search.svg").exists()
    rehearse("report", "results/bench-find")
    assert Path("results/bench-find/report.html").read_text() == text


def test_targets_that_nothing_meets_fail(rehearse: Rehearse, fake: Callable) -> None:
    fake()
    arguments = ["ttfp_p90<=0.1" if word.startswith("ttfp") else word for word in SMALL]
    status, out, err = rehearse(*arguments)
    assert status == 1 and err == "nothing meets the targets, down to c=1\n"
    assert "liveserve cannot handle even c=1: P90 TTFP 200 ms" in out


@pytest.mark.slow("measures and draws whole searches")
def test_another_parameter_is_searched(rehearse: Rehearse, fake: Callable) -> None:
    rounds = fake()
    status, out, _ = rehearse(*SMALL, "--set", "c=8", "--over", "rate", "--from", "0.5", "--to", "3", "--json")
    assert status == 0 and {row["rate"] for row in json.loads(out)["found"]} == {3}
    assert [points[0].params["rate"] for points in rounds] == [1, 2, 3]
    assert {point.params["c"] for points in rounds for point in points} == {8}


@pytest.mark.slow("measures and draws whole searches")
def test_a_point_that_failed_meets_nothing(rehearse: Rehearse, fake: Callable) -> None:
    fake(lambda point: point.params["c"] > 9 and point.engine == "liveserve")
    status, out, _ = rehearse(*SMALL)
    assert status == 1 and "liveserve can handle at least c=9" in out
    assert "at 10 it could not be measured (the GPU <melted>)" in out


def test_a_dry_run_shows_what_is_measured_first(rehearse: Rehearse) -> None:
    status, out, _ = rehearse(*SMALL, "--set", "gpu=h100,h200", "--dry-run")
    assert status == 0 and out.count("c=8") == 8 and out.endswith("8 points\n") and not Path("results").exists()


def test_a_metric_that_these_points_lack_is_named(rehearse: Rehearse, fake: Callable) -> None:
    fake()
    status, out, err = rehearse("find", "bench", "--slo", "frames_with_speech>=0.9", *SMALL[4:])
    assert (status, out) == (2, "") and "--slo frames_with_speech: none of the 4 points measured has it" in err


def test_a_damaged_search_is_named(tmp_path: Path) -> None:
    (tmp_path / "search.json").write_text("{}")
    with refused("search.json is damaged; delete it and search again."):
        load_searches(tmp_path, [])


def recorded() -> Any:
    """The record of two calls at a time from 0 to 100 s, and of one to 110 s."""
    calls, nothing = [(0.0, 50.0), (0.0, 60.0), (50.0, 100.0), (60.0, 110.0)], float("nan")  # begins and ends, s
    rows = [(begin_s, "session_start", call, nothing) for call, (begin_s, _) in enumerate(calls)]
    rows += [(5.0, "first_text", 0, 100.0), (70.0, "text", 2, 300.0), (105.0, "text", 3, 999.0)]
    rows += [(end_s, "session_end", call, nothing) for call, (_, end_s) in enumerate(calls)]
    rows += [(110.0, "run_end", -1, nothing)]
    turns = [(1.0, 3.0, "completed", 0.2, 0.0), (2.0, 4.0, "barged_in", 0.4, 0.0), (61.0, 63.0, "completed", 0.9, 0.0)]
    turns += [(62.0, 64.0, "failed", nothing, nothing), (101.0, 103.0, "completed", 0.1, 0.0)]
    columns = ["turn_start_s", "turn_end_s", "status", "audio_ttfp_s", "max_gap_s"]
    events = pd.DataFrame(rows, columns=["t", "kind", "session", "value"]).sort_values("t", kind="stable")
    tables = {
        "events": events.reset_index(drop=True),
        "requests": pd.DataFrame(turns, columns=columns).assign(spoken=True),
    }
    (point,) = expand(Experiment(name="x", engines=["vllm_omni"], workload="voice", set={"sessions": 4, "c": 2}))
    metrics = {"steady_begin": {"value": 0.0}, "steady_end": {"value": 100.0}}
    return SimpleNamespace(point=point, metrics=metrics, table=lambda name, **_: tables[name])


def test_costs_are_over_the_steady_time_with_all_callers() -> None:
    used = usage([recorded()], parse_targets("ttfp_p90<=0.5 continuity>=0.9"))
    assert used.gpu_s_per_minute == pytest.approx(60 * 2 / 2)  # two GPUs for two callers
    assert used.gpu_s_per_turn == pytest.approx(2 * 100 / 3)  # of five turns one failed and one ended after 100 s
    assert used.gpu_s_per_million_tokens == pytest.approx(1e6 * 2 * 100 / (100 + 300))
    assert used.goodput_rps == pytest.approx(2 / 100)  # of the three one was too late


@pytest.mark.slow("measures and draws whole searches")
def test_a_search_with_a_real_engine_reports_the_largest_c_and_its_cost(tmp_path: Path) -> None:
    chosen = settings("engine=liveserve", "sessions=4", "turns=1", "gpu=h100")
    command = [*REHEARSE, *FIND, *chosen, "--seeds", "1", "--jobs", "1", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)["found"]
    assert row["c"] == 2 and row["at_least"]  # it tries at most half of the sessions
    assert (row["hardware"], row["gpus"]) == ("h100", 2)
    assert row["gpu_s_per_minute"] == pytest.approx(60 * 2 / 2, rel=0.2)  # two GPUs for two callers
    assert row["goodput_rps"] > 0
    (record,) = (tmp_path / "results/bench-find/points").iterdir()
    assert load_record(record).point.params["gpu"] == "h100"
