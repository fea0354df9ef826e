"""The report of a live run: whether the generator kept time, what failed and why, what the server said of itself."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np
import pandas as pd
import pytest

from harness.experiments.point import id_of
from harness.live.live_slo import Asked
from harness.metrics.turns import DISTRIBUTIONS, columns_of
from harness.records.results import SEARCH, write_summary
from harness.request_tables.steady_window import counted
from harness.slo import search as searches
from harness.slo.search import CLOSE, Bounds, Question, Search, Searches, Step, judge
from harness.slo.targets import Repeat, Target, parse_targets
from reports.comparison.compare import compare
from reports.figures import search as picture_of_search
from reports.figures.picture import LeftOut, Picture
from reports.live import judged, live_scrape, live_send_delay, live_time
from reports.live import live_record as live
from reports.live.live_verdict import LiveVerdict, live_verdict
from reports.live.side import CALLS
from reports.pages.html import write_report
from reports.runs.measured import Run, load_run
from reports.runs.table import results_data
from tests.reports import framed
from tests.reports.lived import DELAY_S, ERROR, FLOOR_S, HEARD_S, LAG_S, LATE_DELAY_S, URL, play_heard, serve_live
from tests.reports.lived import live as experiment
from tests.reports.page import Page, terminal
from tests.reports.written import resealed
from workloads.errors import UserError

pytestmark = pytest.mark.slow

PICTURES = ["answer", "targets", "live_over_time", "send_delay", "server_metrics"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three loads, of which the largest was too much for the generator, with their report."""
    folder = serve_live(tmp_path_factory.mktemp("live") / "run")
    write_report(folder)
    return folder


@pytest.fixture(scope="module")
def run(folder: Path) -> Run:
    return load_run(folder)


@pytest.fixture(scope="module")
def html(folder: Path) -> str:
    return (folder / "report.html").read_text()


@pytest.fixture(scope="module")
def page(html: str) -> Page:
    return Page(html)


@pytest.fixture
def copy(folder: Path, tmp_path: Path) -> Path:
    """The same results, to change them."""
    return shutil.copytree(folder, tmp_path / "run")


def at(run: Run, c: int) -> live.Load:
    return next(load for load in live.loads(run) if dict(load.cell)["c"] == c)


def left_out(run: Run, c: int) -> list[list[int]]:
    """Of each point of a load: failed turns, turns in the ramp, and in the drain."""
    tables = [point.record.table("requests") for point in at(run, c).points]
    failed = [int((t["status"] == "failed").sum()) for t in tables]
    return [failed, *([int((t["phase"] == phase).sum()) for t in tables] for phase in ("ramp", "drain"))]


def test_the_terminal_shows_send_delay_shed_failed_and_what_is_invalid(folder: Path, run: Run) -> None:
    lines = terminal(folder)
    said = "\n".join(lines)
    lines = [line.split() for line in lines if line.strip().startswith("endpoint")]
    assert [line[:2] for line in lines] == [["endpoint", "4"], ["endpoint", "8"], ["endpoint", "32"]]
    failed = f"{median(left_out(run, 4)[0]):.0f}"
    assert lines[0][-4:] == ["0.80", "3", failed, "2"]  # send delay P99 in ms, turned away, failed, runs
    before, after = ({n for c in (4, 8) for n in left_out(run, c)[i]} for i in (1, 2))
    note = f"{min(before)} to {max(before)} before the steady window, {min(after)} to {max(after)} after it."
    assert note in " ".join(said.split())
    assert lines[2][-4:] == ["0", "of", "2", "INVALID"] and set(lines[2][2:-4]) != {"–"}
    assert "send delay" in said and "rejected" in said and "wasted audio" in said
    assert ERROR.split(",")[0] not in said and said.count("INVALID, and its numbers do not count") == 2


def test_the_load_that_was_stands_beside_the_load_that_was_asked_for(folder: Path, run: Run, page: Page) -> None:
    for c in (4, 8):
        was = median(point.kept["on_line_mean"] or 0.0 for point in at(run, c).points)
        assert 0 < was <= c + 1e-9
        (row,) = [line.split() for line in terminal(folder) if line.split()[:2] == ["endpoint", str(c)]]
        assert row[2] == f"{was:.1f}"
        (found,) = [row for row in page.section("Results") if row[0] == str(c)]
        assert found[2].startswith(f"{was:.1f}")


def test_80_columns_have_room_for_every_heading(folder: Path) -> None:
    lines = terminal(folder, width=80)
    said = "\n".join(lines)
    assert "…" not in said and max(map(len, lines)) <= 80
    for word in ("users", "mean", "continuity", "sessions", "failed", "INVALID"):
        assert word in said.split()


def test_numbers_of_an_invalid_point_are_shown_and_marked_and_are_no_results(run: Run, page: Page) -> None:
    for point in at(run, 32).points:
        assert point.kept["send_delay_p99"] is not None and point.value("send_delay_p99") is None
    row = next(row for row in page.section("Results")[1:] if row[0] == "32")
    assert set(row[2:-1]) != {"–"} and row[-1] == "0 of 2 | INVALID"
    assert all(each["metrics"] == {} for each in results_data(run) if each["settings"]["c"] == 32)
    assert len(page.section("Failed points")) == 2


def test_the_generators_table_says_how_late_and_how_late_at_best(run: Run, page: Page) -> None:
    found = {row[0]: row for row in page.section("The load generator")[2:]}
    delay, floor = f"{1000 * DELAY_S:.2f}", f"{1000 * FLOOR_S:.2f}"
    assert found["4"][1:] == [
        found["4"][1],
        "0.08",
        delay,
        delay,
        floor,
        "0.10 / 0.40",
        "3.00 / 3.00",
        f"{1000 * LAG_S:.2f}",
        " / ".join(str(sum(counts)) for counts in left_out(run, 4)[1:]),
        "6",
        "11",
        "valid",
    ]
    assert found["32"][3] == f"{1000 * LATE_DELAY_S:.2f}" and found["32"][-1] == "INVALID"


def test_send_delays_of_the_table_are_those_that_were_written(run: Run) -> None:
    load = at(run, 4)
    written = np.concatenate([pd.read_parquet(p.record.folder / "sends.parquet")["send_delay_s"] for p in load.points])
    assert np.array_equal(live.delays_s(load.points), np.sort(written))
    assert live.send_delay_limit_s(load.points) == 0.02


def test_failures_are_counted_by_reason(run: Run, page: Page) -> None:
    header, *rows = page.section("Failures by reason")
    assert header == ["reason", "c = 4", "c = 8", "c = 32"] or [text.replace("\xa0", " ") for text in header] == [
        "reason", "c = 4", "c = 8", "c = 32",
    ]  # fmt: skip
    assert [row[0] for row in rows] == ["error: overloaded", "closed 1006"]
    for row in rows:
        for count, c in zip(row[1:], (4, 8, 32), strict=True):
            tables = [point.record.table("failures") for point in at(run, c).points]
            assert int(count) == sum((one["reason"] == row[0]).sum() for one in tables)


def test_every_picture_is_on_the_page_in_order(folder: Path, page: Page) -> None:
    assert [name for name in page.ids if name in PICTURES] == PICTURES
    for name in PICTURES:
        assert (folder / "figures" / f"{name}.svg").stat().st_size > 3000
    assert len(page.ids) == len(set(page.ids))
    assert not page.tags & {"script", "link", "img", "iframe"}


def test_the_page_says_what_was_called_and_claims_nothing_about_its_inside(html: str, page: Page) -> None:
    facts = {row[0]: row[1] for row in page.section("What was run") if len(row) == 2}
    assert facts["Target"] == f"{URL}, dialect openai" and "Deployment" not in facts
    assert "The server is not ours" in html and "GPUs are modelled" not in html
    assert "2 of them INVALID" in html
    assert "over sockets the times of generation are unknown" in html


@pytest.mark.usefixtures("unrendered")
def test_a_run_of_which_every_load_was_too_much_still_shows_why(tmp_path: Path) -> None:
    folder = serve_live(tmp_path / "run", experiment(grid={"c": [32, 64]}, seeds=[0]))
    page = Page(write_report(folder).read_text())
    assert {row[-1] for row in page.section("The load generator")[2:]} == {"INVALID"}
    assert "send_delay" in page.ids and "INVALID" in "".join(terminal(folder))


@pytest.mark.parametrize(
    ("name", "title", "factor"),
    [
        ("vllm:num_requests_running", "Requests running", 1.0),
        ("vllm:kv_cache_usage_perc", "KV cache usage, %", 100.0),
        ("vllm:generation_tokens_total", "Generation tokens, 1/s", 1.0),
        ("rehearsal_process_cpu_seconds_total", "Process CPU, s per s", 1.0),
        ("process_resident_memory_bytes", "Process resident memory, MiB", 2.0**-20),
    ],
)
def test_series_of_a_server_are_named_as_one_says_them(name: str, title: str, factor: float) -> None:
    assert live_scrape.readable(name) == (title, factor)


@pytest.mark.usefixtures("unrendered")
def test_without_scrape_and_floor_nothing_is_made_up(tmp_path: Path) -> None:
    folder = serve_live(tmp_path / "run", experiment(grid={"c": [4]}, seeds=[0]), more=False)
    html = write_report(folder).read_text()
    (row,) = Page(html).section("The load generator")[2:]
    assert row[5] == "–" and row[6] == "– / –"
    assert "no endpoint was scraped" in html


def test_two_endpoints_compare_as_any_two_runs_and_what_is_invalid_is_failed(folder: Path, copy: Path) -> None:
    comparison = compare(folder, copy)
    assert [cell.settings["c"] for cell in comparison.cells] == [4, 8, 32]
    assert [(cell.failed_a, cell.failed_b, cell.same_trace) for cell in comparison.cells] == [
        (0, 0, True), (0, 0, True), (2, 2, True),
    ]  # fmt: skip
    metrics = {each.column.metric: each for each in comparison.cells[0].metrics}
    assert {"audio_ttfp_p90", "wasted_audio_ratio", "send_delay_p99", "shed", "failed"} <= metrics.keys()
    assert all(each.ratio.median in (1, None) for each in metrics.values())
    assert comparison.differing == {} and comparison.regressions(1) == []
    assert compare(folder, copy, ["connect_p99"]).cells[0].metrics[0].a.median == pytest.approx(0.003)


def test_several_urls_are_an_axis_of_the_settings() -> None:
    grid = {"c": [4], "url": ["ws://a/x", "ws://b/y"]}
    assert CALLS.settings(experiment(set={}, grid=grid, seeds=[0])).startswith("--sessions 4 URL ws://a/x,ws://b/y")


def test_a_load_that_lost_its_tables_before_they_were_written_is_left_out(copy: Path) -> None:
    for point in load_run(copy).points:
        if point.params["c"] != 4:
            (point.record.folder / "sends.parquet").unlink()
            (point.record.folder / "failures.parquet").unlink()
    run = load_run(resealed(copy))
    assert [dict(load.cell)["c"] for load in live.loads(run)] == [4]
    assert len(live.generator(run)) == 1


def test_the_send_delay_curves_are_the_tails_of_their_messages(run: Run) -> None:
    picture = live_send_delay.draw(run)
    (axes,) = picture.figure.axes
    curves = [line for line in axes.get_lines() if "c\xa0" in str(line.get_label())]
    assert len(curves) == 3
    for line, c in zip(curves, (4, 8, 32), strict=True):
        delays = live.delays_s(at(run, c).points)
        x, share = (np.asarray(values, float) for values in line.get_data())
        assert share[0] == 1 and share[-1] == pytest.approx(1 / delays.size)
        assert (np.diff(x) >= 0).all() and (np.diff(share) < 0).all()
        late = x[share >= 0.01].max()  # where the curve meets the line of P99
        assert late == pytest.approx(1000 * np.percentile(delays, 99, method="lower"), rel=0.02)
    markers = [line for line in axes.get_lines() if line.get_marker() == "o"]
    assert len(markers) == 6  # P50 and P99 of the floor at each load


def test_sessions_on_line_never_exceed_the_places(run: Run) -> None:
    for c in (4, 8):
        for point in at(run, c).points:
            on_line = live.on_line(point)
            assert on_line.max() == c and on_line.iloc[-1] == 0 and (on_line >= 0).all()


def test_the_run_as_it_went_is_of_the_busiest_load_that_counts(run: Run) -> None:
    assert {dict(load.cell)["c"] for load in live.busiest(run)} == {8}
    picture = live_time.draw(run)
    upper, lower = picture.figure.axes
    point = live.one(at(run, 8).points)
    dots = next(line for line in upper.get_lines() if line.get_label() == "one turn")
    assert len(dots.get_xdata()) == point.all_requests["audio_ttfp_s"].notna().sum()  # type: ignore[arg-type]
    crosses = next(line for line in upper.get_lines() if line.get_marker() == "x")
    assert len(crosses.get_xdata()) == len(point.kinds("turn_failed"))  # type: ignore[arg-type]
    failed = next(line for line in lower.get_lines() if "failed" in str(line.get_label()))
    assert np.asarray(failed.get_ydata())[-1] == len(point.kinds("turn_failed"))


def scraped(*rows: tuple[float, str, str, float]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["t_s", "name", "labels", "value"])


def test_known_series_come_first_then_what_moved_and_parts_of_histograms_never() -> None:
    rows = []
    for t in (0.0, 1.0, 2.0):
        rows += [
            (t, "up", "{}", 1.0),
            (t, "aaa_moves", "{}", t),
            (t, "zzz_still", "{}", 1.0),
            (t, "vllm:num_requests_running", "{}", 2.0),
            (t, "vllm:num_preemptions_total", "{}", 0.0),
            (t, "ttft_bucket", '{"le":"1"}', t),
            (t, "ttft_sum", "{}", t),
        ]
    assert live_scrape.chosen(scraped(*rows)) == ["vllm:num_requests_running", "aaa_moves"]


def test_counters_are_rates_and_a_restart_of_the_server_is_no_negative_one() -> None:
    label = '{"engine":"e","stage":"thinker"}'
    other = '{"engine":"e","stage":"talker"}'
    rows = [(t, "n_total", label, v) for t, v in ((0.0, 0.0), (2.0, 10.0), (3.0, 1.0), (4.0, 3.0))]
    rows += [(0.0, "n_total", other, 0.0), (1.0, "n_total", other, 7.0)]
    series = dict(live_scrape.series_of(scraped(*rows), "n_total"))
    assert set(series) == {"thinker", "talker"}  # labels that are the same everywhere are left out
    assert series["thinker"].index.tolist() == [2.0, 3.0, 4.0]
    assert series["thinker"].iloc[[0, 2]].tolist() == [5.0, 2.0] and np.isnan(series["thinker"].iloc[1])
    assert series["talker"].tolist() == [7.0]


def test_a_last_poll_right_after_another_makes_no_burst() -> None:
    rows = [(t, "n_total", "{}", v) for t, v in ((0.0, 0.0), (1.0, 4.0), (2.0, 8.0), (2.01, 9.0))]
    (series,) = dict(live_scrape.series_of(scraped(*rows), "n_total")).values()
    assert series.index.tolist() == [1.0, 2.01] and series.iloc[1] == pytest.approx(5 / 1.01)


def test_an_endpoint_that_never_answered_is_said_to(copy: Path) -> None:
    for point in load_run(copy).points:
        rows = scraped((0.0, "up", '{"reason":"no connection"}', 0.0), (0.0, "scrape_duration_seconds", "{}", 0.01))
        rows.to_parquet(point.record.folder / "scrape.parquet")
    left_out = live_scrape.draw(load_run(resealed(copy)))
    assert isinstance(left_out, LeftOut) and "never answered" in left_out.reason


TARGETS = parse_targets("ttfp_p90<=1.0 continuity>=0.95")


def step(calls: int, points: list[str]) -> Step:
    """An endpoint that answers within a second up to 45 calls, loses turns from 60 on, and is continuous to 40."""
    ttfp_s = calls / 45 if calls < 60 else float("inf")
    repeats = [Repeat(points[i], (ttfp_s + 0.01 * i, 1.0 if calls <= 40 else 0.9)) for i in range(3)]
    return judge(calls, repeats, TARGETS)


@pytest.fixture
def searched(copy: Path) -> Path:
    points = [point.point.id for point in load_run(copy).points]
    write_search(copy, lambda n, _: step(n, points), TARGETS)
    return copy


def write_search(folder: Path, measure: Callable[[int, int], Step], targets: tuple[Target, ...]) -> None:
    """What `rehearse live --find` leaves."""
    question = Question("c", targets, Bounds(1, 256, 8, whole=True, close=CLOSE), (0,), "call")
    found = searches.search(measure, question)
    (folder / SEARCH).write_text(json.dumps(Searches(question, (found,)).as_dict()))


def found_in(folder: Path) -> Search:
    found = load_run(folder).searches
    assert found is not None
    return found.searched[0]


@pytest.mark.usefixtures("unrendered")
def test_the_capacity_stands_first_with_its_sentence_and_every_number_of_calls(searched: Path) -> None:
    html = write_report(searched).read_text()
    page = Page(html)
    header, *rows = page.section("How many calls it can handle")
    assert header[:4] == ["calls", "P90 TTFP ≤ 1,000 ms", "continuity ≥ 95 %", "repeats"]
    capacity = found_in(searched)
    assert capacity.holds == 40
    assert [int(row[0]) for row in rows] == [step.value for step in capacity.steps]
    assert [row[-1] for row in rows] == ["passes" if step.value <= 40 else "fails" for step in capacity.steps]
    assert next(row for row in rows if row[0] == "64")[1].startswith("∞")
    assert html.index('id="capacity"') < html.index('id="run"') and " can handle 40 calls: " in html


def test_the_capacity_picture_marks_every_repeat_the_targets_and_the_answer(searched: Path) -> None:
    capacity = found_in(searched)
    picture = picture_of_search.draw(load_run(searched))
    assert isinstance(picture, Picture)
    assert picture.title == "How many calls it can handle: 40"
    for axes in picture.figure.axes:
        markers = [line for line in axes.get_lines() if line.get_marker() in ("o", "^")]
        assert len(markers) == sum(len(step.repeats) for step in capacity.steps)
    late, continuity = picture.figure.axes
    arrows = [line for line in late.get_lines() if line.get_marker() == "^"]
    assert {line.get_xdata()[0] for line in arrows} == {64} and len(arrows) == 3  # type: ignore[index]
    assert [text.get_text() for axes in (late, continuity) for text in axes.texts] == [
        *("FAIL", "PASS", "target ≤ 1,000 ms"),
        *("PASS", "FAIL", "target ≥ 95 %"),
    ]


def test_the_first_picture_is_the_target_that_decided_over_the_loads(run: Run) -> None:
    verdict = verdict_of(run.folder)
    target = judged.decisive(verdict)
    assert str(target) == "continuity ≥ 95 %" and target.metric in verdict.sentence
    picture = judged.draw(verdict)
    (axes,) = picture.figure.axes
    assert picture.title == "continuity ≥ 95 %: FAIL" and axes.get_ylabel() == "continuity, %"
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["4", "8", "32"]
    loads = [next(each for each in load.result.judgements if each.target == target) for load in verdict.loads]
    markers = [line for line in axes.get_lines() if line.get_marker() in ("X", "D")]
    assert [line.get_marker() for line in markers] == ["X", "X", "D"]  # 32 calls are INVALID
    for place, (judgement, line) in enumerate(zip(loads, markers, strict=True)):
        assert judgement.value is not None and judgement.interval is not None
        assert (line.get_xdata()[0], line.get_ydata()[0]) == (place, 100 * judgement.value)  # type: ignore[index]
        spans = [line for line in axes.get_lines() if list(line.get_xdata()) == [place, place]]  # type: ignore[arg-type]
        ends = [100 * end for end in judgement.interval]
        assert len(spans) == 1 and list(spans[0].get_ydata()) == ends  # type: ignore[arg-type]
    joined = [list(line.get_xdata()) for line in axes.get_lines() if line.get_linestyle() == "-"]  # type: ignore[arg-type]
    assert [0, 1] in joined  # what is INVALID is not joined
    assert {"PASS", "FAIL", "target ≥ 95 %"} <= {text.get_text() for text in axes.texts}
    others = judged.others(verdict)
    assert isinstance(others, Picture) and len(others.figure.axes) == len(verdict.asked.targets) - 1


def test_the_waits_over_time_have_the_line_of_their_target(run: Run) -> None:
    upper, _ = live_time.draw(run).figure.axes
    assert "target P90 TTFP ≤ 800 ms" in [text.get_text() for text in upper.texts]
    assert [800.0, 800.0] in [list(line.get_ydata()) for line in upper.get_lines()]  # type: ignore[arg-type]


def test_the_wait_of_the_median_turn_is_drawn_in_its_parts(run: Run, tmp_path: Path) -> None:
    assert isinstance(left_out := live_time.wait_parts(run), LeftOut) and "no ends of turns" in left_out.reason
    heard = load_run(serve_live(tmp_path / "run", experiment(grid={"c": [4]}, seeds=[0]), play=play_heard))
    picture = live_time.wait_parts(heard)
    assert isinstance(picture, Picture)
    (axes,) = picture.figure.axes
    ttfp_ms = 1000 * heard.points[0].requests["audio_ttfp_s"].dropna().quantile(0.5, interpolation="lower")
    bars = {
        text.get_text(): (bar.get_x(), bar.get_width())  # type: ignore[attr-defined]
        for text, bar in zip(axes.get_yticklabels(), axes.patches, strict=True)
    }
    assert bars["end of turn"] == pytest.approx((0, 1000 * HEARD_S))
    assert bars["answer"] == pytest.approx((1000 * HEARD_S, ttfp_ms - 1000 * HEARD_S))


@pytest.mark.parametrize(("bound", "title"), [("0.0001", "none"), ("1000s", "256 or more")])
def test_a_search_that_nothing_passed_or_nothing_failed_has_a_picture_too(
    searched: Path, bound: str, title: str
) -> None:
    targets = parse_targets(f"ttfp_p90<={bound}")
    (point, *_) = load_run(searched).points
    write_search(searched, lambda n, _: judge(n, [Repeat(point.point.id, (0.2,))], targets), targets)
    picture = picture_of_search.draw(load_run(searched))
    assert isinstance(picture, Picture) and picture.title.endswith(f": {title}")


def test_without_a_search_or_with_one_of_other_points_there_is_no_capacity(folder: Path, searched: Path) -> None:
    assert isinstance(picture_of_search.draw(load_run(folder)), LeftOut)
    stale = (searched / SEARCH).read_text().replace(load_run(searched).points[0].point.id, "0" * 16)
    (searched / SEARCH).write_text(stale)
    assert isinstance(picture_of_search.draw(load_run(searched)), LeftOut)


@pytest.mark.usefixtures("unrendered")
def test_calls_of_an_endpoint_whose_inside_nobody_sees(tmp_path: Path, folder: Path) -> None:
    """Frames over sockets: the user's view and the deadline stay, the pool and the wait cap are not made up."""
    calls = framed.serve(tmp_path / "run", framed.calls(grid={"sessions": [5]}, seeds=[0]))
    sends, ids = load_run(folder).points[0].record.table("sends"), []
    for point in load_run(calls).points:
        sends.to_parquet(point.record.folder / "sends.parquet")
        manifest = point.record.folder / "manifest.json"
        stored = json.loads(manifest.read_text())
        del stored["point"]["engine_params"]["wait_cap"]
        stored["id"] = id_of(stored["point"])
        manifest.write_text(json.dumps(stored))
        ids.append(point.record.folder.rename(calls / "points" / stored["id"]).name)
    write_summary(resealed(calls), ids)
    html = write_report(calls).read_text()
    page = Page(html)
    assert "dashboard_and_user" in page.ids and "send_delay" in page.ids
    assert "over sockets a server" in html
    assert (calls / "figures" / "dashboard_and_user.svg").is_file()
    assert not (calls / "figures" / "kv_pool.svg").exists()


@pytest.mark.usefixtures("unrendered")
def test_the_report_of_a_live_run_opens_with_the_verdict(copy: Path) -> None:
    html = write_report(copy).read_text()
    block = html[html.index('<section id="verdict"') : html.index("</section>")]
    assert html.index("<h1>") < html.index('id="verdict"') < html.index("<nav>")
    # Nobody said what for, as in a directory of an earlier version: the default of what was measured.
    assert "is the default for voice" in block and "P90 TTFP ≤ 800 ms" in block
    loads = ["4 calls", "8 calls", "32 calls"]
    assert [load.name for load in verdict_of(copy).loads] == loads and all(load in block for load in loads)
    assert "INVALID: the P99 of the send delay" in block

    Asked(parse_targets("failed<=0"), True).write(copy)
    found = verdict_of(copy)
    assert found.asked.given and found.default_for is None and found.loads[0].on_line
    assert write_report(copy).read_text() == write_report(copy).read_text()

    (copy / "verdict.json").write_text("{")
    with pytest.raises(UserError, match=r"verdict\.json is damaged; delete it"):
        write_report(copy)


def verdict_of(folder: Path) -> LiveVerdict:
    found = live_verdict(load_run(folder))
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("target", "verdict", "sentence"),
    [
        ("ttfp_p50<=9s", "INCONCLUSIVE", " at 32 calls: 2 of 2 runs: INVALID: "),
        ("ttfp_p50<=1ms", "FAIL", f": {URL} cannot handle 4 calls: P50 TTFP "),
    ],
)
def test_of_several_loads_the_largest_that_passes_is_said(
    folder: Path, tmp_path: Path, target: str, verdict: str, sentence: str
) -> None:
    found = live_verdict(load_run(folder), Asked(parse_targets(target), True))
    assert found is not None and found.verdict == verdict
    assert found.sentence.startswith(f"{verdict}{sentence}") and "; 8: " in found.sentence
    assert found.measured == "2025-01-01 00:00 UTC"
    late = found.loads[-1]  # what was measured is shown, though it does not count
    assert (
        late.result.shown == "INVALID"
        and not late.result.measured
        and late.result.judgements[0].n > 0
        and late.result.judgements[0].value
    )
    first = found.loads[0].result
    notes = " ".join(found.notes)
    assert len(first.measured) == 2 and "One run of each" not in notes and "all runs together" in notes
    turns = pd.concat([counted(each.table("requests")) for each in first.measured])
    values = DISTRIBUTIONS["audio_ttfp"].sample(columns_of(turns))
    assert first.judgements[0].value == pytest.approx(np.nanpercentile(values, 50))


@pytest.mark.usefixtures("unrendered")
def test_a_search_is_the_verdict_of_its_directory(searched: Path) -> None:
    found = verdict_of(searched)
    assert found.search is not None and found.verdict == "PASS" and " can handle 40 calls: " in found.sentence
    data = json.loads((searched / SEARCH).read_text())
    (one,) = data["searched"]
    one["verdicts"] = [[at, "invalid" if at > 40 else verdict] for at, verdict in one["verdicts"]]
    for each in one["tried"]:
        each["error"] = "INVALID: late" if each["value"] > 40 else ""
    (searched / SEARCH).write_text(json.dumps(data))
    found = verdict_of(searched)
    assert found.verdict == "INCONCLUSIVE" and "at 44 it could not be measured (INVALID: late)" in found.sentence
    html = write_report(searched).read_text()
    assert found.sentence in html and "could not be measured" in html[html.index('id="capacity"') :]


@pytest.mark.usefixtures("unrendered")
def test_one_seed_of_each_load_is_no_verdict_on_its_use(tmp_path: Path) -> None:
    html = write_report(serve_live(tmp_path / "run", experiment(seeds=[0]))).read_text()
    assert "no load qualifies" not in html and "not judged: a load takes 3 seeds, and one seed of each was" in html
