"""The report of a live run: whether the generator kept time, what failed and why, what the server said of itself."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

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

pytestmark = pytest.mark.slow("draws figures")

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


def counts(run: Run, c: int, column: str, value: str) -> list[int]:
    """How many turns of each point of a load have this value."""
    return [point.record.table("requests")[column].tolist().count(value) for point in at(run, c).points]


def curves(axes: Axes, marker: str | None = None) -> list[tuple[list[float], list[float]]]:
    """x and y of the lines with this marker, or of all lines."""
    lines = [line for line in axes.get_lines() if marker in (None, line.get_marker())]
    return [(np.asarray(line.get_xdata()).tolist(), np.asarray(line.get_ydata()).tolist()) for line in lines]


def texts(axes: Axes) -> list[str]:
    return [text.get_text() for text in axes.texts]


def test_the_terminal_shows_send_delay_shed_failed_and_what_is_invalid(folder: Path, run: Run, page: Page) -> None:
    lines = terminal(folder)
    said = " ".join(" ".join(lines).split())
    rows = [line.split() for line in lines if line.strip().startswith("endpoint")]
    assert [row[:2] for row in rows] == [["endpoint", "4"], ["endpoint", "8"], ["endpoint", "32"]]
    failed = f"{median(counts(run, 4, 'status', 'failed')):.0f}"
    assert rows[0][-4:] == ["0.80", "3", failed, "2"]  # send delay P99 in ms, turned away, failed, runs
    assert rows[2][-4:] == ["0", "of", "2", "INVALID"] and set(rows[2][2:-4]) != {"–"}
    before, after = ({n for c in (4, 8) for n in counts(run, c, "phase", phase)} for phase in ("ramp", "drain"))
    assert f"{min(before)} to {max(before)} before the steady window, {min(after)} to {max(after)} after it." in said
    assert "send delay" in said and "rejected" in said and "wasted audio" in said
    assert ERROR.split(",")[0] not in said and said.count("INVALID, and its numbers do not count") == 2
    for row, on_page in zip(rows[:2], page.section("Results")[1:], strict=False):
        was = median(point.kept["on_line_mean"] or 0.0 for point in at(run, int(row[1])).points)
        assert 0 < was <= int(row[1]) + 1e-9
        assert row[2] == f"{was:.1f}" and on_page[2].startswith(row[2])


def test_80_columns_have_room_for_every_heading(folder: Path) -> None:
    lines = terminal(folder, width=80)
    said = "\n".join(lines)
    assert "…" not in said and max(map(len, lines)) <= 80
    assert {"users", "mean", "continuity", "sessions", "failed", "INVALID"} <= {*said.split()}


def test_an_invalid_load_is_shown_and_marked_and_is_no_result(run: Run, page: Page) -> None:
    for point in at(run, 32).points:
        assert point.kept["send_delay_p99"] is not None and point.value("send_delay_p99") is None
    row = next(row for row in page.section("Results")[1:] if row[0] == "32")
    assert set(row[2:-1]) != {"–"} and row[-1] == "0 of 2 | INVALID"
    assert all(each["metrics"] == {} for each in results_data(run) if each["settings"]["c"] == 32)
    assert len(page.section("Failed points")) == 2


def test_the_generators_table_says_how_late_and_how_late_at_best(run: Run, page: Page) -> None:
    found = {row[0]: row for row in page.section("The load generator")[2:]}
    delay, floor, lag = (f"{1000 * s:.2f}" for s in (DELAY_S, FLOOR_S, LAG_S))
    left_out = " / ".join(str(sum(counts(run, 4, "phase", phase))) for phase in ("ramp", "drain"))
    assert found["4"][2:8] == ["0.08", delay, delay, floor, "0.10 / 0.40", "3.00 / 3.00"]
    assert found["4"][8:] == [lag, left_out, "6", "11", "valid"]
    assert found["32"][3] == f"{1000 * LATE_DELAY_S:.2f}" and found["32"][-1] == "INVALID"


def test_failures_are_counted_by_reason(run: Run, page: Page) -> None:
    header, *rows = page.section("Failures by reason")
    assert [text.replace("\xa0", " ") for text in header] == ["reason", "c = 4", "c = 8", "c = 32"]
    assert [row[0] for row in rows] == ["error: overloaded", "closed 1006"]
    for place, c in enumerate((4, 8, 32), 1):
        failures = pd.concat([point.record.table("failures") for point in at(run, c).points])
        assert [int(row[place]) for row in rows] == [(failures["reason"] == row[0]).sum() for row in rows]


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


def test_a_run_over_two_urls_lists_them_in_its_settings() -> None:
    grid = {"c": [4], "url": ["ws://a/x", "ws://b/y"]}
    settings = CALLS.settings(experiment(set={}, grid=grid, seeds=[0]))
    assert settings.startswith("--sessions 4 URL ws://a/x,ws://b/y")  # c is the option --sessions


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
    assert isinstance(picture, Picture)
    (axes,) = picture.figure.axes
    shown = [line for line in axes.get_lines() if "c\xa0" in str(line.get_label())]
    for line, c in zip(shown, (4, 8, 32), strict=True):
        sends = [pd.read_parquet(point.record.folder / "sends.parquet") for point in at(run, c).points]
        delays = pd.concat(sends)["send_delay_s"].to_numpy()
        x, share = (np.asarray(values, float) for values in line.get_data())
        assert share[0] == 1 and share[-1] == pytest.approx(1 / delays.size)
        assert (np.diff(x) >= 0).all() and (np.diff(share) < 0).all()
        late = x[share >= 0.01].max()  # where the curve meets the line of P99
        assert late == pytest.approx(1000 * np.percentile(delays, 99, method="lower"), rel=0.02)
    assert len(curves(axes, "o")) == 6  # P50 and P99 of the floor at each load
    assert live.send_delay_limit_s(at(run, 4).points) == 0.02


def test_sessions_on_line_never_exceed_the_places(run: Run) -> None:
    for c in (4, 8):
        for point in at(run, c).points:
            on_line = live.on_line(point)
            assert on_line.max() == c and on_line.iloc[-1] == 0 and (on_line >= 0).all()


def test_the_run_as_it_went_is_of_the_busiest_load_that_counts(run: Run) -> None:
    assert {dict(load.cell)["c"] for load in live.busiest(run)} == {8}
    picture = live_time.draw(run)
    assert isinstance(picture, Picture)
    upper, lower = picture.figure.axes
    point = live.one(at(run, 8).points)
    (dots,) = [line for line in upper.get_lines() if line.get_label() == "one turn"]
    assert len(np.asarray(dots.get_xdata())) == point.all_requests["audio_ttfp_s"].notna().sum()
    ((crosses, _),) = curves(upper, "x")
    (failed,) = [line for line in lower.get_lines() if "failed" in str(line.get_label())]
    assert len(crosses) == np.asarray(failed.get_ydata())[-1] == len(point.kinds("turn_failed"))
    assert "target P90 TTFP ≤ 800 ms" in texts(upper) and [800.0, 800.0] in [y for _, y in curves(upper)]


def scraped(*rows: tuple[float, str, str, float]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["t_s", "name", "labels", "value"])


def test_known_series_come_first_then_what_moved_and_parts_of_histograms_never() -> None:
    still = {"up": 1.0, "zzz_still": 1.0, "vllm:num_requests_running": 2.0, "vllm:num_preemptions_total": 0.0}
    rows = [(t, name, "{}", value) for t in (0.0, 1.0, 2.0) for name, value in still.items()]
    rows += [(t, name, "{}", t) for t in (0.0, 1.0, 2.0) for name in ("aaa_moves", "ttft_bucket", "ttft_sum")]
    assert live_scrape.chosen(scraped(*rows)) == ["vllm:num_requests_running", "aaa_moves"]


def counted_up(label: str, values: dict[float, float]) -> list[tuple[float, str, str, float]]:
    return [(t, "n_total", label, value) for t, value in values.items()]


def test_counters_are_rates_and_a_restart_of_the_server_is_no_negative_one() -> None:
    thinker, talker = ('{"engine":"e","stage":"%s"}' % stage for stage in ("thinker", "talker"))  # noqa: UP031
    rows = counted_up(thinker, {0.0: 0.0, 2.0: 10.0, 3.0: 1.0, 4.0: 3.0}) + counted_up(talker, {0.0: 0.0, 1.0: 7.0})
    series = dict(live_scrape.series_of(scraped(*rows), "n_total"))
    assert set(series) == {"thinker", "talker"}  # labels that are the same everywhere are left out
    assert series["thinker"].to_dict() == pytest.approx({2.0: 5.0, 3.0: np.nan, 4.0: 2.0}, nan_ok=True)
    assert series["talker"].tolist() == [7.0]


def test_a_last_poll_right_after_another_makes_no_burst() -> None:
    rows = counted_up("{}", {0.0: 0.0, 1.0: 4.0, 2.0: 8.0, 2.01: 9.0})
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
    header, *rows = Page(html).section("How many calls it can handle")
    assert header[:4] == ["calls", "P90 TTFP ≤ 1,000 ms", "continuity ≥ 95 %", "repeats"]
    capacity = found_in(searched)
    assert capacity.holds == 40
    assert [(int(row[0]), row[-1]) for row in rows] == [
        (step.value, "passes" if step.value <= 40 else "fails") for step in capacity.steps
    ]
    assert next(row for row in rows if row[0] == "64")[1].startswith("∞")
    assert html.index('id="capacity"') < html.index('id="run"') and " can handle 40 calls: " in html


def test_the_capacity_picture_marks_every_repeat_the_targets_and_the_answer(searched: Path) -> None:
    picture = picture_of_search.draw(load_run(searched))
    assert isinstance(picture, Picture) and picture.title == "How many calls it can handle: 40"
    late, continuity = picture.figure.axes
    for axes in (late, continuity):
        repeats = sum(len(step.repeats) for step in found_in(searched).steps)
        assert len(curves(axes, "o")) + len(curves(axes, "^")) == repeats
    assert [x[0] for x, _ in curves(late, "^")] == [64] * 3
    assert texts(late) == ["FAIL", "PASS", "target ≤ 1,000 ms"] and texts(continuity) == [
        "PASS",
        "FAIL",
        "target ≥ 95 %",
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
    values = [100 * (judgement.value or 0) for judgement in loads]
    assert curves(axes, "X") == [([0], [values[0]]), ([1], [values[1]])]
    assert curves(axes, "D") == [([2], [values[2]])]  # 32 calls are INVALID
    for place, judgement in enumerate(loads):
        assert [y for x, y in curves(axes) if x == [place] * 2] == [[100 * end for end in judgement.interval or ()]]
    joined = [np.asarray(line.get_xdata()).tolist() for line in axes.get_lines() if line.get_linestyle() == "-"]
    assert [0, 1] in joined  # what is INVALID is not joined
    assert {"PASS", "FAIL", "target ≥ 95 %"} <= {*texts(axes)}
    others = judged.others(verdict)
    assert isinstance(others, Picture) and len(others.figure.axes) == len(verdict.asked.targets) - 1


def test_the_wait_of_the_median_turn_is_drawn_in_its_parts(run: Run, tmp_path: Path) -> None:
    nothing = live_time.wait_parts(run)
    assert isinstance(nothing, LeftOut) and "no ends of turns" in nothing.reason
    heard = load_run(serve_live(tmp_path / "run", experiment(grid={"c": [4]}, seeds=[0]), play=play_heard))
    picture = live_time.wait_parts(heard)
    assert isinstance(picture, Picture)
    (axes,) = picture.figure.axes
    ttfp_ms = 1000 * heard.points[0].requests["audio_ttfp_s"].dropna().quantile(0.5, interpolation="lower")
    bars = [bar for bar in axes.patches if isinstance(bar, Rectangle)]
    names = [text.get_text() for text in axes.get_yticklabels()]
    found = {name: (bar.get_x(), bar.get_width()) for name, bar in zip(names, bars, strict=True)}
    assert found["end of turn"] == pytest.approx((0, 1000 * HEARD_S))
    assert found["answer"] == pytest.approx((1000 * HEARD_S, ttfp_ms - 1000 * HEARD_S))


@pytest.mark.parametrize(("bound", "title"), [("0.0001", "none"), ("1000s", "256 or more")])
def test_a_search_that_nothing_passed_or_nothing_failed_has_a_picture(searched: Path, bound: str, title: str) -> None:
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
def test_the_largest_load_that_passes_is_said(folder: Path, target: str, verdict: str, sentence: str) -> None:
    found = live_verdict(load_run(folder), Asked(parse_targets(target), True))
    assert found is not None and found.verdict == verdict
    assert found.sentence.startswith(f"{verdict}{sentence}") and "; 8: " in found.sentence
    assert found.measured == "2025-01-01 00:00 UTC"
    late, first = found.loads[-1].result, found.loads[0].result
    assert late.shown == "INVALID" and not late.measured
    assert late.judgements[0].n > 0 and late.judgements[0].value  # shown, though it does not count
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
