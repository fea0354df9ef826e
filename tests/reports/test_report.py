import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from harness.experiments.point import Point
from reports.pages.html import write_report
from tests.reports.page import Page
from tests.reports.served import bench, serve

pytestmark = pytest.mark.slow("draws figures")

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


def test_the_page_is_whole_and_fetches_nothing_from_elsewhere(folder: Path, page: Page, html: str) -> None:
    logs = [link for link in page.links if not link.startswith("#")]
    assert logs and all(link.startswith("points/") and link.endswith("/log.txt") for link in logs)
    assert "http" not in html and "@import" not in html
    assert not page.tags & {"script", "link", "img", "iframe", "object", "image"}
    assert len(page.ids) == len(set(page.ids))
    wanted = {link[1:] for link in page.links if link.startswith("#")}
    assert len(wanted) > 50 and wanted <= set(page.ids)  # glyphs and clip paths of six pictures
    assert [name for name in page.ids if name in PICTURES] == PICTURES
    sizes = {path.name: path.stat().st_size for path in (folder / "figures").iterdir()}
    assert sizes.keys() == {f"{name}.svg" for name in PICTURES} and min(sizes.values()) > 5000


SHOWN = {
    **dict.fromkeys(("audio_ttfp_p50", "audio_ttfp_p90"), (1000, 0)),
    **dict.fromkeys(("continuity", "continuity_fixed_timeline", "wasted_token_ratio"), (100, 1)),
    **dict.fromkeys(("completed_rps", "effective_rps"), (1, 3)),
    "audio_ttfp_whole_p90": (1000, 0),
    "continuity_whole": (100, 1),
    "completed_rps_whole": (1, 3),
}
"""Columns of the results: by how much a value is multiplied there, and digits."""


def finished(folder: Path, **cell: Any) -> list[dict[str, dict[str, Any]]]:
    """The metrics of the finished points of a cell, as summary.json has them."""
    rows = json.loads((folder / "summary.json").read_text())
    here = [row for row in rows if {**row["params"], "engine": row["engine"]}.items() >= cell.items()]
    return [row["metrics"] for row in here if row["status"] == "ok"]


def test_the_table_says_what_summary_json_says(folder: Path, page: Page) -> None:
    header, *rows = page.section("Results")
    assert header[:3] == ["c", "p", "engine"]
    assert [row[3].split(" | ")[0] for row in rows] == ["300", "200"] * 4  # ms, as the script has it
    c = p = ""
    for row in rows:
        c, p = row[0] or c, row[1] or p  # given once for a cell
        ok = finished(folder, engine=row[2], c=int(c), p=float(p))
        for cell, (metric, (factor, digits)) in zip(row[3:-1], SHOWN.items(), strict=True):
            known = [each[metric]["value"] for each in ok if each[metric]["value"] is not None]
            value = f"{factor * median(known):.{digits}f}" if known else "–"
            assert cell.split(" | ")[0].rstrip("*") == value
            assert cell.rpartition("n ")[2] == str(min(each[metric]["n"] for each in ok))
        assert row[-1] == ("3" if len(ok) == 3 else "2 of 3")


def test_callers_notice_what_the_results_say(page: Page) -> None:
    header, *rows = page.section("What callers noticed")
    assert header == ["c", "p", "engine", "noticed", "measure", "share or count", "P50 | ms", "P90 | ms"]
    assert [row[3] for row in rows] == ["delays", "gaps", "silences", "barge-ins"] * 8
    cells = [[cell.split(" | ")[0] for cell in row] for row in rows]
    results = [[cell.split(" | ")[0] for cell in row] for row in page.section("Results")[1:]]
    assert [row[6:] for row in cells if row[3] == "delays"] == [row[3:5] for row in results]
    assert [row[5] for row in cells if row[3] == "gaps"] == [row[5] for row in results]
    assert {row[5] for row in cells if row[3] == "silences"} == {"0"}


def test_a_failed_point_is_shown_with_its_reason_and_its_log(folder: Path, html: str, page: Page) -> None:
    rows = page.section("Failed points")
    assert [row[0] for row in rows] == ["liveserve c=16 p=0.0 seed=2", "liveserve c=16 p=1.0 seed=2"]
    assert all("the GPU <melted>" in row[1] for row in rows)
    assert "<melted>" not in html and "a <small> bench" not in html  # escaped
    logs = [folder / link for link in page.links if link.endswith("log.txt")]
    assert len(logs) == 2 and all(log.is_file() for log in logs)


def test_the_comparison_is_paired_by_seed(folder: Path, page: Page) -> None:
    """Seed 2 failed under one engine at c = 16, so only the seeds 0 and 1 are compared there."""
    ours, baseline = (
        [each["wasted_token_ratio"]["value"] for each in finished(folder, engine=engine, c=16, p=1.0)[:2]]
        for engine in ("liveserve", "vllm_omni")
    )
    difference = median(a - b for a, b in zip(ours, baseline, strict=True))
    row = next(row for row in page.section("liveserve")[1:] if row[:2] == ["16", "1"])
    assert row[6].split(" | ")[0] == f"{100 * difference:+.1f}".replace("-", "−")


def test_the_papers_number_stands_next_to_ours(page: Page) -> None:
    rows = page.section("Published numbers")[2:]
    median_ttfp = next(row for row in rows if row[1].startswith("TTFP P50"))
    assert median_ttfp[2:] == ["860", "530", "300", "200"]  # ms
    not_measured = next(row for row in rows if "c = 12" in row[1])
    assert not_measured[2:] == ["81.3", "91.8", "–", "–"]


def test_the_same_records_give_the_same_bytes_without_vllm(folder: Path) -> None:
    """In another process, with another hash seed, and with vLLM and torch out of reach."""
    files = [*folder.glob("figures/*"), folder / "report.html"]
    before = {path: path.read_bytes() for path in files}
    program = (
        "import sys; sys.modules['vllm'] = sys.modules['torch'] = None\n"
        "from pathlib import Path\n"
        "from reports.pages.html import write_report\n"
        "write_report(Path(sys.argv[1]))"
    )
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONHASHSEED": "7", "PYTHONPATH": str(root), "TZ": "Asia/Tokyo"}
    subprocess.run([sys.executable, "-c", program, str(folder)], check=True, cwd=root, env=environment)
    assert len(before) == len(PICTURES) + 1
    assert [path.name for path in files if path.read_bytes() != before[path]] == []


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
