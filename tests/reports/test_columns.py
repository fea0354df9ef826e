"""Columns that are asked for, n behind every value, and the sign of too few events: terminal, CSV and page."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.metrics.turns import DISTRIBUTIONS, columns_of
from reports.pages.html import write_report
from reports.runs.measured import load_run
from reports.runs.table import flat, results_data
from reports.tables.columns import asked_columns, columns, legend, live_notes, parse_columns, shown
from tests.reports.page import Page, terminal
from tests.reports.served import bench, serve
from workloads.errors import UserError

pytestmark = pytest.mark.usefixtures("unrendered")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return serve(tmp_path_factory.mktemp("columns") / "run", bench())


def rows(folder: Path) -> list[dict[str, Any]]:
    return json.loads((folder / "summary.json").read_text())


def events(folder: Path, engine: str, c: int, p: float, metric: str) -> int:
    return min(
        row["metrics"][metric]["n"]
        for row in rows(folder)
        if row["engine"] == engine and row["params"]["c"] == c and row["params"]["p"] == p
    )


@pytest.mark.parametrize("width", [80, 150])
def test_the_terminal_has_n_behind_the_values_it_is_of(folder: Path, width: int) -> None:
    lines = terminal(folder, width)
    assert max(map(len, lines)) <= width and not any("…" in line for line in lines)
    row = next(line.split() for line in lines if line.split()[:3] == ["vllm_omni", "16", "1.0"])
    turns, replies = (events(folder, "vllm_omni", 16, 1.0, metric) for metric in ("audio_ttfp_p90", "continuity"))
    assert turns != replies
    assert [int(cell) for cell in row if cell in (str(turns), str(replies))][:2] == [turns, replies]
    assert any("300*" in cell for cell in row) == (turns < 10)
    assert "P90 10" in " ".join(" ".join(lines).split())


def test_columns_over_the_same_events_share_an_n(folder: Path) -> None:
    (header,) = [line for line in terminal(folder, 150, ("audio_ttfp_p50", "audio_ttfp_p95")) if " c " in line]
    assert header.split() == ["engine", "c", "p", "ms", "ms", "n", "runs"]


def test_what_else_is_to_know_of_a_live_run_is_said() -> None:
    runs = {"c=8: ": [{"tokens_stated": 1.0, "requests_repeated": 0.0}] * 2}
    assert live_notes(runs) == live_notes({"": [{"tokens_stated": None}, {}]}) == []
    runs["c=16: "] = [{"tokens_stated": 0.25, "requests_repeated": 2.0}, {"requests_repeated": 1.0}]
    assert live_notes(runs) == [
        "Times between tokens count messages, one token each, where the server states no token counts; it states them "
        "for c=8: 100 %, c=16: 25 % of the replies.",
        "Requests that were sent again, because the server had just closed the kept connection: c=16: 3.",
    ]
    assert live_notes({"c=1: ": [{"early_replies": 2.0}, {"early_replies": 0.0}]}) == [
        "Replies that began before the caller had finished, so they have no TTFP: c=1: 2. --workload duplex measures "
        "overlapping speech."
    ]


def test_any_metric_can_be_asked_for_by_name() -> None:
    assert parse_columns("p95, ttfp_p99 continuity,p95") == ("p95", "audio_ttfp_p99", "continuity")
    assert parse_columns("online.ttft_p99,busy_vision") == ("online.ttft_p99", "busy_vision")
    spoken, text = (asked_columns(("p95",), columns(spoken=spoken)) for spoken in (True, False))
    assert [(c.metric, c.heading, c.unit) for c in (*spoken, *text)] == [
        ("audio_ttfp_p95", "TTFP P95", "ms"),
        ("ttft_p95", "TTFT P95", "ms"),
    ]


def test_a_percentile_alone_is_of_what_the_run_waits_for(folder: Path) -> None:
    calls = shown([{"frames_with_speech": 1.0, "frame_latency_p50": 1.0, "frame_latency_p99": 1.0}])
    asked = asked_columns(("p50", "p99.9"), calls)
    assert [column.title for column in asked] == ["latency P50, ms", "latency P99.9, ms"]
    with pytest.raises(
        UserError, match=r"--columns: 'p999' is no metric with a percentile .* write for example p99\.9\."
    ):
        parse_columns("p999")
    run = load_run(folder)
    (first, *_) = results_data(run, ("p12.5",))
    values = [
        np.percentile(DISTRIBUTIONS["audio_ttfp"].sample(columns_of(point.requests)), 12.5)
        for point in run.points
        if point.point.engine == first["engine"]
        and all(point.params[axis] == first["settings"][axis] for axis in run.experiment.grid)
    ]
    assert first["metrics"]["audio_ttfp_p12.5"]["median"] == pytest.approx(np.median(values))
    assert "audio_ttfp_p12.5" not in run.points[0].values


def test_csv_says_how_many_events_and_runs_and_flags_too_few(folder: Path) -> None:
    run = load_run(folder)
    (first, *_) = flat(results_data(run))
    for metric, needs in (("audio_ttfp_p50", 2), ("audio_ttfp_p90", 10), ("audio_ttfp_p99", 100), ("continuity", 1)):
        n = events(folder, first["engine"], first["c"], first["p"], metric)
        assert (first[f"{metric}.n"], first[f"{metric}.runs"]) == (n, 3)
        assert first[f"{metric}.few"] == (n < needs)
    (asked, *_) = results_data(run, ("p99", "continuity"))
    assert [*asked["metrics"]] == ["audio_ttfp_p99", "continuity"]


def test_the_page_has_the_columns_too_and_says_what_its_signs_mean(folder: Path, tmp_path: Path) -> None:
    html = write_report(folder, ("p99", "continuity")).read_text()
    header, *body = Page(html).section("Results")
    assert header[3:-1] == ["TTFP P99 | ms?", "continuity | %?"]
    assert all("*" in row[3] and "*" not in row[4] for row in body)
    assert legend(asked_columns(("p99",), columns(spoken=True))) in html
    assert "* of fewer" in html and "P99 100" in html
    assert "*" not in write_report(folder).read_text().partition('id="results"')[0].rpartition("continuity, %")[2]
