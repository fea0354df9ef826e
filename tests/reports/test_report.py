"""The page that a person opens: complete, self-contained, true to the records, the same every time."""

import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import median

import pytest

from harness.experiments.point import Point
from reports.pages.html import write_report
from tests.reports.page import Page
from tests.reports.served import bench, serve
from workloads.errors import UserError

pytestmark = pytest.mark.slow

PICTURES = [
    "answer",
    "latency_distribution",
    "throughput_latency",
    "continuity",
    "wasted_tokens",
    "generation_playback",
    "timeline",
]


def broken(point: Point) -> bool:
    return point.engine == "liveserve" and point.seed == 2 and point.params["c"] == 16


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run in which the points of one seed failed, with its report."""
    folder = serve(tmp_path_factory.mktemp("report") / "run", bench(set={"sessions": 150, "turns": 2}), broken)
    assert write_report(folder) == folder / "report.html"
    return folder


@pytest.fixture(scope="module")
def html(folder: Path) -> str:
    return (folder / "report.html").read_text()


@pytest.fixture(scope="module")
def page(html: str) -> Page:
    return Page(html)


def test_nothing_is_fetched_from_elsewhere(page: Page, html: str) -> None:
    logs = [link for link in page.links if not link.startswith("#")]
    assert logs and all(link.startswith("points/") and link.endswith("/log.txt") for link in logs)
    assert "http" not in html
    assert not page.tags & {"script", "link", "img", "iframe", "object", "image"}
    assert "@import" not in html


def test_ids_are_unique_and_every_reference_has_its_target(page: Page) -> None:
    assert len(page.ids) == len(set(page.ids))
    wanted = {link[1:] for link in page.links if link.startswith("#")}
    assert len(wanted) > 50  # glyphs and clip paths of six pictures
    assert wanted <= set(page.ids)


def test_every_picture_is_on_the_page_and_beside_it(folder: Path, page: Page) -> None:
    assert [name for name in page.ids if name in PICTURES] == PICTURES
    files = {f"{name}.svg" for name in PICTURES}
    assert {path.name for path in (folder / "figures").iterdir()} == files
    assert all((folder / "figures" / name).stat().st_size > 5000 for name in files)


def test_the_table_says_what_summary_json_says(folder: Path, page: Page) -> None:
    header, *rows = page.section("Results")
    assert header[:3] == ["c", "p", "engine"]
    found, counts = {}, {}
    c = p = ""
    for row in rows:
        c, p = row[0] or c, row[1] or p  # given once for a cell
        found[(row[2], c, p)] = [cell.split(" | ")[0].rstrip("*") for cell in row[3:]]
        counts[(row[2], c, p)] = [cell.rpartition("n ")[2] for cell in row[3:-1]]
    summary = json.loads((folder / "summary.json").read_text())
    shown = [
        ("audio_ttfp_p50", 1000, 0),
        ("audio_ttfp_p90", 1000, 0),
        ("continuity", 100, 1),
        ("continuity_fixed_timeline", 100, 1),
        ("wasted_token_ratio", 100, 1),
        ("completed_rps", 1, 3),
        ("effective_rps", 1, 3),
        ("audio_ttfp_whole_p90", 1000, 0),
        ("continuity_whole", 100, 1),
        ("completed_rps_whole", 1, 3),
    ]
    assert len(found) == 8
    for (engine, c, p), cells in found.items():
        points = [
            row
            for row in summary
            if row["engine"] == engine and row["params"]["c"] == int(c) and row["params"]["p"] == float(p)
        ]
        ok = [row for row in points if row["status"] == "ok"]
        expected = []
        for metric, factor, digits in shown:
            values = [row["metrics"][metric]["value"] for row in ok]
            known = [value for value in values if value is not None]
            expected.append(f"{factor * median(known):.{digits}f}" if known else "–")
        assert cells == [*expected, "3" if len(ok) == 3 else "2 of 3"]
        least = [str(min(row["metrics"][metric]["n"] for row in ok)) for metric, _, _ in shown]
        assert counts[engine, c, p] == least


def test_callers_notice_what_the_results_say(folder: Path, page: Page) -> None:
    header, *rows = page.section("What callers noticed")
    assert header == ["c", "p", "engine", "noticed", "measure", "share or count", "P50 | ms", "P90 | ms"]
    assert [row[3] for row in rows] == ["delays", "gaps", "silences", "barge-ins"] * 8
    of = {
        what: [[cell.split(" | ")[0] for cell in row[5:]] for row in rows if row[3] == what]
        for what in ("delays", "gaps", "silences", "barge-ins")
    }
    results = [[cell.split(" | ")[0] for cell in row] for row in page.section("Results")[1:]]
    assert [row[1:] for row in of["delays"]] == [row[3:5] for row in results]
    assert [row[0] for row in of["gaps"]] == [row[5] for row in results]
    assert [row[0] for row in of["silences"]] == ["0"] * 8
    rates = {}
    for row in json.loads((folder / "summary.json").read_text()):
        key = row["params"]["c"], row["params"]["p"], row["engine"]
        if row["status"] == "ok":
            rates.setdefault(key, []).append(row["metrics"]["barge_in_rate"]["value"])
    written = sorted(f"{100 * median(each):.1f}" for each in rates.values())
    assert sorted(row[0] for row in of["barge-ins"]) == written and "0.0" in written


def test_scripted_numbers_arrive(page: Page) -> None:
    """They answer in 300 and 200 ms, and some sessions of the baseline break at c = 16."""
    rows = page.section("Results")[1:]
    assert [row[3].split(" | ")[0] for row in rows] == ["300", "200"] * 4
    at_16 = next(row for row in rows if row[0] == "16")
    assert at_16[2] == "vllm_omni" and 0 < float(at_16[5].split(" | ")[0]) < 100


def test_a_failed_point_is_shown_with_its_reason_and_its_log(folder: Path, html: str, page: Page) -> None:
    rows = page.section("Failed points")
    assert [row[0] for row in rows] == ["liveserve c=16 p=0.0 seed=2", "liveserve c=16 p=1.0 seed=2"]
    assert all("the GPU <melted>" in row[1] for row in rows)
    assert "<melted>" not in html and "a <small> bench" not in html  # escaped, not markup
    logs = [folder / link for link in page.links if link.endswith("log.txt")]
    assert len(logs) == 2 and all(log.is_file() for log in logs)
    assert "2 points failed" in html


def test_the_comparison_is_paired_by_seed(folder: Path, page: Page) -> None:
    """Seed 2 failed under one engine at c = 16, so only the seeds 0 and 1 are compared there."""
    summary = json.loads((folder / "summary.json").read_text())
    waste = {
        (row["engine"], row["seed"]): row["metrics"]["wasted_token_ratio"]["value"]
        for row in summary
        if row["status"] == "ok" and row["params"]["c"] == 16 and row["params"]["p"] == 1
    }
    difference = median(waste["liveserve", seed] - waste["vllm_omni", seed] for seed in (0, 1))
    row = next(row for row in page.section("liveserve")[1:] if row[:2] == ["16", "1"])
    assert row[6].split(" | ")[0] == f"{100 * difference:+.1f}".replace("-", "−")


def test_the_paper_stands_beside_ours(page: Page) -> None:
    rows = page.section("Published numbers")[2:]
    median_ttfp = next(row for row in rows if row[1].startswith("TTFP P50"))
    assert median_ttfp[2:] == ["860", "530", "300", "200"]
    not_measured = next(row for row in rows if "c = 12" in row[1])
    assert not_measured[2:] == ["81.3", "91.8", "–", "–"]


def test_the_same_records_give_the_same_bytes_without_vllm(folder: Path) -> None:
    """In another process, with another hash seed, and with vLLM and torch out of reach."""
    before = {path.name: path.read_bytes() for path in [*folder.glob("figures/*"), folder / "report.html"]}
    program = (
        "import sys; sys.modules['vllm'] = sys.modules['torch'] = None\n"
        "from pathlib import Path\n"
        "from reports.pages.html import write_report\n"
        "write_report(Path(sys.argv[1]))"
    )
    root = Path(__file__).parents[2]
    subprocess.run(
        [sys.executable, "-c", program, str(folder)],
        check=True,
        cwd=root,
        env={**os.environ, "PYTHONHASHSEED": "7", "PYTHONPATH": str(root), "TZ": "Asia/Tokyo"},
    )
    after = {path.name: path.read_bytes() for path in [*folder.glob("figures/*"), folder / "report.html"]}
    assert len(before) == len(PICTURES) + 1
    assert [name for name in before if before[name] != after[name]] == []


@pytest.mark.usefixtures("unrendered")
def test_pictures_that_do_not_apply_are_left_out_with_a_reason(tmp_path: Path) -> None:
    text = {"grid": {}, "seeds": [0], "workload": "poisson", "set": {"reply": "text"}, "name": "mine"}
    folder = serve(tmp_path / "run", bench(**text))
    (folder / "figures").mkdir()
    for suffix in ("svg", "pdf"):
        (folder / "figures" / f"timeline.{suffix}").write_text("of an earlier run")
    html = write_report(folder).read_text()
    assert {path.name for path in (folder / "figures").iterdir()} == {"answer.svg", "latency_distribution.svg"}
    for name in PICTURES[2:]:
        item = html.partition(f'<li id="{name}">')[2].partition("</li>")[0]
        title, _, reason = item.rpartition(": ")
        assert title and len(reason) > 20
    assert "TTFT P90" in html and "TTFP" not in html.partition('id="metrics"')[0]
    assert "Published" not in html  # its numbers belong to the card


def test_a_run_in_which_everything_failed_still_has_a_report(tmp_path: Path) -> None:
    html = write_report(serve(tmp_path / "run", bench(seeds=[0]), lambda point: True)).read_text()
    assert "8 points failed" in html and html.count("<li id=") == len(PICTURES)  # and of a GPU


def test_no_results_is_one_clear_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not a results directory"):
        write_report(tmp_path)
