import json
import re
from pathlib import Path

import pytest
from rich.table import Table

from reports.cli.app import NAMES, build
from reports.figures.style import named
from reports.pages.html import write_report
from reports.pages.index_page import Listed, since
from reports.pages.latex import latex_of
from tests.reports.page import Page
from tests.reports.served import bench, serve


def report(folder: Path, *options: str) -> None:
    """`rehearse report`, in this process."""
    build(NAMES)(["report", str(folder), *options], standalone_mode=False)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two runs, one of which has a report, and a link to it."""
    folder = tmp_path_factory.mktemp("results")
    small = {"grid": {"c": [8, 16], "p": [0.0]}, "seeds": [0]}
    write_report(serve(folder / "first", bench(**small)))
    serve(folder / "more" / "second", bench(**small), lambda point: point.params["c"] == 16)
    (folder / "latest").symlink_to("first")
    return folder


def test_a_figure_has_the_width_the_names_and_no_title(runs: Path) -> None:
    own = runs / "first" / "figures"
    before = (own / "continuity.svg").read_bytes()
    options = ("--figure", "continuity", "--width", "3.3", "--no-title", "--names", "vllm_omni=vLLM-Omni")
    report(runs / "first", *options)
    svg = (own / "paper" / "continuity.svg").read_text()
    texts = re.findall("<!-- (.*) -->", svg)
    assert 'width="237.6pt"' in svg and "vLLM-Omni" in texts and "vllm_omni" not in texts
    assert not [text for text in texts if "Continuity" in text]
    assert (own / "paper" / "continuity.pdf").read_bytes().startswith(b"%PDF")
    assert (own / "continuity.svg").read_bytes() == before


def test_the_latex_table_has_the_rows_of_the_terminal(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report(runs / "first", "--latex", "--names", "vllm_omni=vLLM-Omni")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("% ") and lines[2] == r"\toprule" and lines[-2:] == [r"\bottomrule", r"\end{tabular}"]
    head, *rows = [line.split(" & ") for line in lines if line.endswith(r"\\")]
    cells = [[engine, c, "0.0"] for engine in ("liveserve", "vLLM-Omni") for c in ("8", "16")]
    assert [row[:3] for row in rows] == cells and {len(row) for row in rows} == {len(head)}
    assert r"continuity, \%" in " & ".join(head)


def test_latex_escapes_its_own_signs_and_names_are_replaced_as_whole_words() -> None:
    table = Table("a_b", caption="n\nof 1")
    table.add_row("50 % – ≤ x^2 & $")
    assert r"50 \% -- $\leq$ x\textasciicircum{}2 \& \$ \\" in latex_of(table, {})
    names = {"vllm_omni": "vLLM-Omni", "vllm_omni_wo": "without"}
    assert named("vllm_omni, vllm_omni_wo, my_vllm_omni", names) == "vLLM-Omni, without, my_vllm_omni"
    assert named("vllm_omni", {}) == "vllm_omni"


def test_the_index_lists_every_run_with_its_verdict(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report(runs, "--json")
    second, first = json.loads(capsys.readouterr().out)
    assert (second["run"], first["run"]) == ("more/second", "first")
    assert first["verdict"].startswith("At 16 callers, nobody interrupting, ")
    assert second["verdict"].endswith(". 2 points failed.")
    assert [row["load"].replace("\xa0", " ") for row in (second, first)] == ["c = 8, p = 0", "c = 16, p = 0"]
    assert [row["p90_ms"] for row in (second, first)] == pytest.approx([300, 300])
    assert (second["before"], second["trend"]) == ("first", "")  # of other loads
    page = Page((runs / "index.html").read_text())
    cells = [row[0].split(" |")[0] for row in next(iter(page.tables.values()))]
    assert cells == ["run", "more/second", "first"]
    assert page.links == ["first/report.html"]


@pytest.mark.parametrize(("now_ms", "worse"), [(249, None), (250, True), (151, None), (150, False)])
def test_the_trend_is_coloured_from_a_difference_of_50_ms(now_ms: int, worse: bool | None) -> None:
    earlier = Listed("a", "", "", "", "", load="c = 8", p90_ms={"endpoint": 200.0})
    run = since(earlier._replace(run="b", p90_ms={"endpoint": float(now_ms)}), earlier)
    assert (run.trend, run.worse, run.before) == (f"200 → {now_ms}", worse, "a")


def test_there_is_no_trend_to_a_load_at_which_turns_failed() -> None:
    earlier = Listed("a", "", "", "", "", load="c = 8", p90_ms={"endpoint": 200.0})
    lost = since(earlier._replace(run="b", p90_ms={"endpoint": float("inf")}), earlier)
    assert (lost.trend, lost.before) == ("", "a")


def test_a_run_that_cannot_be_read_stays_in_the_index(tmp_path: Path) -> None:
    run = serve(tmp_path / "run", bench(grid={"c": [8], "p": [0.0]}, seeds=[0]))
    (run / "experiment.json").write_text("[")
    report(tmp_path)
    assert "cannot be read" in (tmp_path / "index.html").read_text()
