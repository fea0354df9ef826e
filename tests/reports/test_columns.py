import json
from pathlib import Path

import numpy as np
import pytest

from harness.metrics.classes import CLASS_DEFINITIONS
from harness.metrics.definitions import Definition
from harness.metrics.frames import FRAME_DEFINITIONS
from harness.metrics.live import LIVE_DEFINITIONS
from harness.metrics.turn_taking import TURN_TAKING_DEFINITIONS
from harness.metrics.turns import DEFINITIONS, DISTRIBUTIONS, columns_of
from reports.pages.html import write_report
from reports.runs.measured import load_run
from reports.runs.table import flat, results_data
from reports.tables.columns import (
    CLASSES,
    asked_columns,
    class_names,
    column_for,
    columns,
    families,
    least_events,
    live_notes,
    parse_columns,
    shown,
    too_few,
)
from tests.reports.page import Page, terminal
from tests.reports.served import bench, serve


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return serve(tmp_path_factory.mktemp("columns") / "run", bench())


def events(folder: Path, metric: str, **cell: object) -> int:
    """The fewest events behind the values of a cell, over its seeds."""
    rows = json.loads((folder / "summary.json").read_text())
    points = [row for row in rows if {**row["params"], "engine": row["engine"]}.items() >= cell.items()]
    return min(row["metrics"][metric]["n"] for row in points)


@pytest.mark.parametrize("width", [80, 150])
def test_the_terminal_marks_a_p90_of_fewer_than_ten_turns(folder: Path, width: int) -> None:
    assert events(folder, "audio_ttfp_p90", engine="vllm_omni", c=16, p=1.0) == 9
    lines = terminal(folder, width)
    [row] = [words for line in lines if (words := line.split())[:3] == ["vllm_omni", "16", "1.0"]]
    assert row[3] == "300" and "300*" in row  # TTFP in ms: a P50 needs two turns
    assert "9" in row
    assert max(map(len, lines)) <= width
    assert not any("…" in line for line in lines)  # no word is shortened


def test_columns_over_the_same_events_share_an_n(folder: Path) -> None:
    (header,) = [line for line in terminal(folder, 150, ("audio_ttfp_p50", "audio_ttfp_p95")) if " c " in line]
    assert header.split() == ["engine", "c", "p", "ms", "ms", "n", "runs"]


STATED = (
    "Times between tokens count messages, one token each, where the server states no token counts; it states them for"
)
AGAIN = "Requests that were sent again, because the server had just closed the kept connection:"
EARLY = "Replies that began before the caller had finished, so they have no TTFP:"


@pytest.mark.parametrize(
    ("runs", "notes"),
    [
        ({"c=8: ": [{"tokens_stated": 1.0, "requests_repeated": 0.0}] * 2}, []),
        ({"": [{"tokens_stated": None}, {}]}, []),
        (
            {"c=8: ": [{"tokens_stated": 1.0}], "c=16: ": [{"tokens_stated": 0.25}]},
            [f"{STATED} c=8: 100 %, c=16: 25 % of the replies."],
        ),
        ({"c=16: ": [{"requests_repeated": 2.0}, {"requests_repeated": 1.0}]}, [f"{AGAIN} c=16: 3."]),
        (
            {"c=1: ": [{"early_replies": 2.0}, {"early_replies": 0.0}]},
            [f"{EARLY} c=1: 2. --workload duplex measures overlapping speech."],
        ),
    ],
)
def test_a_note_says_what_limits_the_numbers_of_a_live_run(runs: dict[str, list[dict]], notes: list[str]) -> None:
    assert live_notes(runs) == notes


def test_columns_may_be_named_shortly_and_twice() -> None:
    assert parse_columns("p95, ttfp_p99 continuity,p95") == ("p95", "audio_ttfp_p99", "continuity")


def test_a_percentile_alone_is_of_what_the_run_waits_for() -> None:
    calls = shown([{"frames_with_speech": 1.0, "frame_latency_p50": 1.0, "frame_latency_p99": 1.0}])
    waits = [columns(spoken=True), columns(spoken=False), calls]
    titles = [[column.title for column in asked_columns(("p99.9",), each)] for each in waits]
    assert titles == [["TTFP P99.9, ms"], ["TTFT P99.9, ms"], ["latency P99.9, ms"]]


def test_a_percentile_that_is_no_metric_is_of_the_requests_of_each_seed(folder: Path) -> None:
    run = load_run(folder)
    (first, *_) = results_data(run, ("p12.5",))
    here = {**first["settings"], "engine": first["engine"]}.items()
    cell = [point for point in run.points if {**point.params, "engine": point.point.engine}.items() >= here]
    values = [np.percentile(DISTRIBUTIONS["audio_ttfp"].sample(columns_of(each.requests)), 12.5) for each in cell]
    assert first["metrics"]["audio_ttfp_p12.5"]["median"] == pytest.approx(np.median(values))


def test_csv_says_how_many_events_and_runs_and_flags_too_few(folder: Path) -> None:
    run = load_run(folder)
    (first, *_) = flat(results_data(run))
    cell = {name: first[name] for name in ("engine", "c", "p")}
    for metric, needs in (("audio_ttfp_p50", 2), ("audio_ttfp_p90", 10), ("audio_ttfp_p99", 100), ("continuity", 1)):
        n = events(folder, metric, **cell)
        found = [first[f"{metric}.{part}"] for part in ("n", "runs", "few")]
        assert found == [n, 3, n < needs]
    (asked, *_) = results_data(run, ("p99", "continuity"))
    assert [*asked["metrics"]] == ["audio_ttfp_p99", "continuity"]


@pytest.mark.parametrize(
    ("metric", "value", "text"),
    [
        ("audio_ttfp_p95", 0.245, "TTFP P95, ms: 245"),
        ("continuity", 0.616, "continuity, %: 61.6"),
        ("tbt_p50", 0.0045, "TBT P50, ms: 4.5"),
        ("generation_span", 8.2, "generation span, s: 8.2"),
        ("heard_tokens", 120.0, "heard tokens, token: 120"),
        ("online.ttft_p99", 1.5, "online: TTFT P99, ms: 1,500"),
        ("touch_s", 2.0, "touch s, s: 2.0"),  # no metric of ours
    ],
)
def test_a_value_has_the_unit_and_the_digits_of_its_metric(metric: str, value: float, text: str) -> None:
    column = column_for(metric)
    assert f"{column.heading}, {column.unit}: {column.text(value)}" == text


def test_a_percentile_needs_as_many_events_as_lie_beyond_it() -> None:
    needs = {"ttft_p50": 2, "audio_ttfp_p90": 10, "ttft_p95": 20, "online.ttft_p99": 100, "send_delay_p99.9": 1000}
    needs |= dict.fromkeys(("continuity", "ttft_mean", "tbt_p99_in_deadline", "kv_peak"), 1)  # no percentiles
    assert {metric: least_events(metric) for metric in needs} == needs
    assert all(least_events(name) > 1 for name in DEFINITIONS if name.endswith(("_p50", "_p90", "_p99")))
    assert [too_few("ttft_p99", n) for n in (0, 1, 99, 100)] == [False, True, True, False]  # no value is not marked


VOCABULARIES = (DEFINITIONS, CLASS_DEFINITIONS, FRAME_DEFINITIONS, LIVE_DEFINITIONS, TURN_TAKING_DEFINITIONS)


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
def test_every_metric_is_told_once_and_in_its_order(vocabulary: dict[str, Definition]) -> None:
    told = [names for names, _ in families(vocabulary)]
    assert sorted(name for names in told for name in names) == sorted(vocabulary)
    first = {names[0] for names in told}
    assert [names[0] for names in told] == [name for name in vocabulary if name in first]


@pytest.fixture(scope="module")
def classes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Requests of two classes: the scripted liveserve answers after 0.2 s, in time, and the baseline after 0.3 s."""
    settings = {"requests": 6, "documents": 2, "ttft_deadline_s": 0.25}
    experiment = bench(workload="co_serving", set=settings, grid={"rate": [1.0, 2.0]}, seeds=[0, 1])
    return serve(tmp_path_factory.mktemp("classes") / "run", experiment)


def test_the_terminal_has_a_row_for_each_class(classes: Path) -> None:
    lines = terminal(classes, 160)
    start = next(index for index, line in enumerate(lines) if "by class of request" in line)
    rows = [line.split() for line in lines[start:] if {"online", "batch"} & set(line.split())]
    assert [("online" in row) for row in rows] == [True, False] * 4
    assert rows[0][:6] == ["liveserve", "1.0", "online", "6", "200*", "100.0"]  # n, P99 TTFT in ms, % in time
    assert rows[1][:4] == ["batch", "2", "200*", "–"]
    by_engine = {row[0]: row for row in rows if "online" in row}
    assert by_engine["vllm_omni"][4:6] == ["300*", "0.0"]


@pytest.mark.usefixtures("unrendered")
def test_the_report_has_a_table_of_classes(classes: Path) -> None:
    header, *rows = Page(write_report(classes).read_text()).section("By class of request")
    assert header == ["rate", "engine", "class", *(f"{c.heading} | {c.unit}" for c in CLASSES)]
    assert [row[2] for row in rows] == ["online", "batch"] * 4
    assert [row[1] for row in rows[:4]] == ["vllm_omni", "", "liveserve", ""]
    in_time = header.index("TTFT | % in time")
    assert [row[in_time].split()[0] for row in rows[:4]] == ["0.0", "–", "100.0", "–"]


def test_the_most_urgent_class_comes_first_and_points_without_one_name_none() -> None:
    points = [{"b.priority": 3.0, "a.priority": 10.0, "a.completed": 1.0}, {"c.priority": None}, {"completed": 1.0}]
    assert class_names(points) == ["b", "a"]
