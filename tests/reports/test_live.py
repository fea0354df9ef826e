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

from harness.live.live_slo import Asked
from harness.metrics.turns import DISTRIBUTIONS, columns_of
from harness.records.results import SEARCH
from harness.request_tables.steady_window import counted
from harness.slo import search as searches
from harness.slo.search import CLOSE, Bounds, Question, Search, Searches, Step, judge
from harness.slo.targets import Repeat, Target, parse_targets
from reports.figures.picture import LeftOut, Picture
from reports.live import judged, live_scrape, live_time
from reports.live import live_record as live
from reports.live.live_verdict import LiveVerdict, live_verdict
from reports.live.side import CALLS
from reports.pages.html import write_report
from reports.runs.measured import Run, load_run
from reports.runs.table import results_data
from tests.reports.lived import URL, play_heard, serve_live
from tests.reports.lived import live as experiment
from tests.reports.page import Page, terminal
from tests.reports.written import resealed
from workloads.errors import UserError

pytestmark = pytest.mark.slow("draws figures")


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


def test_the_terminal_counts_rejected_and_failed_turns_and_marks_an_invalid_load(folder: Path, run: Run) -> None:
    rows = [line.split() for line in terminal(folder) if line.strip().startswith("endpoint")]
    assert [row[1] for row in rows] == ["4", "8", "32"]
    failed = f"{median(counts(run, 4, 'status', 'failed')):.0f}"
    assert rows[0][-4:] == ["0.80", "3", failed, "2"]  # P99 of the send delay in ms, rejected, failed, runs
    assert rows[2][-4:] == ["0", "of", "2", "INVALID"]
    assert set(rows[2][2:-4]) != {"–"}  # its numbers are shown


def test_an_invalid_load_is_shown_on_the_page_and_is_no_result(run: Run, page: Page) -> None:
    for point in at(run, 32).points:
        assert point.kept["send_delay_p99"] is not None
        assert point.value("send_delay_p99") is None
    row = next(row for row in page.section("Results")[1:] if row[0] == "32")
    assert set(row[2:-1]) != {"–"}
    assert row[-1] == "0 of 2 | INVALID"
    assert all(each["metrics"] == {} for each in results_data(run) if each["settings"]["c"] == 32)
    assert len(page.section("Failed points")) == 2


def test_the_generators_table_has_its_delay_its_floor_and_what_the_window_leaves_out(run: Run, page: Page) -> None:
    found = {row[0]: row for row in page.section("The load generator")[2:]}
    # P50, P99 and most of the send delay, its floor, the floor's bias, connecting (P50 / P99), the server's lag, all ms
    assert found["4"][2:9] == ["0.08", "0.80", "0.80", "0.50", "0.10 / 0.40", "3.00 / 3.00", "4.70"]
    left_out = " / ".join(str(sum(counts(run, 4, "phase", phase))) for phase in ("ramp", "drain"))
    assert found["4"][9:] == [left_out, "6", "11", "valid"]  # rejected, failed
    assert (found["32"][3], found["32"][-1]) == ("50.00", "INVALID")


def test_failures_are_counted_by_reason(run: Run, page: Page) -> None:
    header, *rows = page.section("Failures by reason")
    assert [text.replace("\xa0", " ") for text in header] == ["reason", "c = 4", "c = 8", "c = 32"]
    assert [row[0] for row in rows] == ["error: overloaded", "closed 1006"]
    for place, c in enumerate((4, 8, 32), 1):
        failures = pd.concat([point.record.table("failures") for point in at(run, c).points])
        assert [int(row[place]) for row in rows] == [(failures["reason"] == row[0]).sum() for row in rows]


def test_the_page_has_a_picture_of_each_kind_and_claims_nothing_about_the_servers_inside(
    folder: Path, html: str, page: Page
) -> None:
    for name in ("answer", "targets", "live_over_time", "send_delay", "server_metrics"):
        assert (folder / "figures" / f"{name}.svg").stat().st_size > 3000
    facts = {row[0]: row[1] for row in page.section("What was run") if len(row) == 2}
    assert facts["Target"] == f"{URL}, dialect openai"
    assert "Deployment" not in facts
    assert "The server is not ours" in html
    assert "GPUs are modelled" not in html


@pytest.mark.usefixtures("unrendered")
def test_a_run_with_invalid_loads_alone_shows_their_send_delays(tmp_path: Path) -> None:
    folder = serve_live(tmp_path / "run", experiment(grid={"c": [32, 64]}, seeds=[0]))
    page = Page(write_report(folder).read_text())
    assert {row[-1] for row in page.section("The load generator")[2:]} == {"INVALID"}
    assert "send_delay" in page.ids and "INVALID" in "".join(terminal(folder))


@pytest.mark.usefixtures("unrendered")
def test_an_unknown_floor_is_a_dash_and_a_page_without_scrapes_says_so(tmp_path: Path) -> None:
    folder = serve_live(tmp_path / "run", experiment(grid={"c": [4]}, seeds=[0]), more=False)
    html = write_report(folder).read_text()
    (row,) = Page(html).section("The load generator")[2:]
    assert row[5] == "–" and row[6] == "– / –"
    assert "no endpoint was scraped" in html


def test_a_run_over_two_urls_lists_them_in_its_settings() -> None:
    grid = {"c": [4], "url": ["ws://a/x", "ws://b/y"]}
    settings = CALLS.settings(experiment(set={}, grid=grid, seeds=[0]))
    assert settings.startswith("--sessions 4 URL ws://a/x,ws://b/y")  # c is the option --sessions


def test_an_endpoint_that_never_answered_has_no_picture(copy: Path) -> None:
    for point in load_run(copy).points:
        down = pd.DataFrame({"t_s": [0.0], "name": "up", "labels": '{"reason":"no connection"}', "value": 0.0})
        down.to_parquet(point.record.folder / "scrape.parquet")
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
def test_the_page_of_a_search_has_its_answer_and_every_number_of_calls(searched: Path) -> None:
    html = write_report(searched).read_text()
    header, *rows = Page(html).section("How many calls it can handle")
    assert header[:4] == ["calls", "P90 TTFP ≤ 1,000 ms", "continuity ≥ 95 %", "repeats"]
    assert " can handle 40 calls: " in html
    tried = [step.value for step in found_in(searched).steps]
    assert [(int(row[0]), row[-1]) for row in rows] == [(n, "passes" if n <= 40 else "fails") for n in tried]
    assert next(row for row in rows if row[0] == "64")[1].startswith("∞")  # its turns fail from 60 calls on


def test_the_first_picture_is_the_target_that_decided_over_the_loads(run: Run) -> None:
    verdict = verdict_of(run.folder)
    target = judged.decisive(verdict)
    assert str(target) == "continuity ≥ 95 %"
    assert target.metric in verdict.sentence
    (axes,) = judged.draw(verdict).figure.axes
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["4", "8", "32"]
    loads = [next(each for each in load.result.judgements if each.target == target) for load in verdict.loads]
    values = [100 * (judgement.value or 0) for judgement in loads]
    assert curves(axes, "X") == [([0], [values[0]]), ([1], [values[1]])]  # FAIL
    assert curves(axes, "D") == [([2], [values[2]])]  # INVALID
    for place, judgement in enumerate(loads):
        assert [y for x, y in curves(axes) if x == [place] * 2] == [[100 * end for end in judgement.interval or ()]]


def test_the_wait_of_the_median_turn_is_drawn_in_its_parts(tmp_path: Path) -> None:
    run = load_run(serve_live(tmp_path / "run", experiment(grid={"c": [4]}, seeds=[0]), play=play_heard))
    picture = live_time.wait_parts(run)
    assert isinstance(picture, Picture)
    (axes,) = picture.figure.axes
    bars = [bar for bar in axes.patches if isinstance(bar, Rectangle)]
    names = [text.get_text() for text in axes.get_yticklabels()]
    found = {name: (bar.get_x(), bar.get_width()) for name, bar in zip(names, bars, strict=True)}
    ttfp_ms = 1000 * run.points[0].requests["audio_ttfp_s"].dropna().quantile(0.5, interpolation="lower")
    assert found["end of turn"] == pytest.approx((0, 100))  # ms, begin and length
    assert found["answer"] == pytest.approx((100, ttfp_ms - 100))


@pytest.mark.usefixtures("unrendered")
def test_a_report_is_judged_by_the_targets_that_its_directory_holds(copy: Path) -> None:
    Asked(parse_targets("failed<=0"), True).write(copy)
    found = verdict_of(copy)
    assert found.asked.given and found.default_for is None
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
def test_a_load_is_judged_over_the_turns_of_its_runs(folder: Path, target: str, verdict: str, sentence: str) -> None:
    found = live_verdict(load_run(folder), Asked(parse_targets(target), True))
    assert found is not None
    assert found.sentence.startswith(f"{verdict}{sentence}")
    first, late = found.loads[0].result, found.loads[-1].result
    turns = pd.concat([counted(each.table("requests")) for each in first.measured])
    values = DISTRIBUTIONS["audio_ttfp"].sample(columns_of(turns))
    assert first.judgements[0].value == pytest.approx(np.nanpercentile(values, 50))
    assert (late.shown, late.measured) == ("INVALID", ())
    assert late.judgements[0].value  # shown, though it does not count
