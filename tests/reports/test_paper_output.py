"""What a paper needs of a run, a figure of its column's width and a LaTeX table, and the index of many runs."""

import json
import re
from pathlib import Path

import pytest
from rich.table import Table

from reports.cli.app import NAMES, build
from reports.figures.column import fit
from reports.figures.drawing import legend, sheet
from reports.figures.style import named, style
from reports.pages.html import write_report
from reports.pages.index_page import Listed, since
from reports.pages.latex import latex_of
from tests.reports.page import Page
from tests.reports.served import bench, serve
from workloads.errors import UserError


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
    before = (runs / "first" / "figures" / "continuity.svg").read_bytes()
    renamed = ("--names", "vllm_omni=vLLM-Omni")
    report(runs / "first", "--figure", "continuity", "--width", "3.3", "--no-title", *renamed)
    svg = (runs / "first" / "figures" / "paper" / "continuity.svg").read_text()
    assert re.search(r'width="237.6pt"', svg)
    texts = re.findall("<!-- (.*) -->", svg)
    assert "vLLM-Omni" in texts and "vllm_omni" not in texts and not any("Continuity" in t for t in texts)
    assert (runs / "first" / "figures" / "paper" / "continuity.pdf").read_bytes().startswith(b"%PDF")
    assert (runs / "first" / "figures" / "continuity.svg").read_bytes() == before


def test_panels_too_narrow_for_their_text_are_stacked() -> None:
    with style():
        figure, axes = sheet(3, "title", 3.0, 3, sharex=True, sharey=True)
        for index, panel in enumerate(axes):
            panel.plot([0, 1], [index, 1], label=f"a rather long name {index}")
            panel.set_ylabel("share" if index == 0 else "")
        legend(figure)
        fit(figure, 3.3)
    assert figure.get_size_inches()[0] == 3.3
    places = [place.colspan.start for panel in axes if (place := panel.get_subplotspec()) is not None]
    assert places == [0, 0, 0]
    assert [panel.get_ylabel() for panel in axes] == ["share"] * 3
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [
        f"a rather long name {index}" for index in range(3)
    ]


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ("--figure continuty", "unknown figure 'continuty'. Did you mean 'continuity'?"),
        ("--figure wasted_tokens", "figure wasted_tokens cannot be drawn: it needs two probabilities"),
        ("--width 3.3", "give --figure NAME too"),
        ("--names a=b", "--names is for --figure and --latex"),
        ("--latex --names a", "--names a is not a list of names"),
    ],
)
def test_a_mistake_is_one_sentence(runs: Path, asked: str, sentence: str) -> None:
    with pytest.raises(UserError, match=re.escape(sentence)):
        report(runs / "first", *asked.split())


def test_the_latex_table_has_the_rows_of_the_terminal(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report(runs / "first", "--latex", "--names", "vllm_omni=vLLM-Omni")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("% ") and lines[2] == r"\toprule" and lines[-2:] == [r"\bottomrule", r"\end{tabular}"]
    rows = [line for line in lines if line.endswith(r"\\")]
    assert [row.split(" & ")[:3] for row in rows[1:]] == [
        ["liveserve", "8", "0.0"], ["liveserve", "16", "0.0"], ["vLLM-Omni", "8", "0.0"], ["vLLM-Omni", "16", "0.0"],
    ]  # fmt: skip
    assert len({row.count(" & ") for row in rows}) == 1 and r"continuity, \%" in rows[0]


def test_latex_escapes_its_own_signs() -> None:
    table = Table("a_b", caption="n\nof 1")
    table.add_row("50 % – ≤ x^2 & $")
    assert r"50 \% -- $\leq$ x\textasciicircum{}2 \& \$ \\" in latex_of(table, {})


def test_a_name_is_replaced_as_a_whole_word() -> None:
    names = {"vllm_omni": "vLLM-Omni", "vllm_omni_wo": "without"}
    assert named("vllm_omni, vllm_omni_wo, my_vllm_omni", names) == "vLLM-Omni, without, my_vllm_omni"
    assert named("vllm_omni", {}) == "vllm_omni"


def test_the_index_lists_every_run_with_its_verdict(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report(runs, "--json")
    rows = json.loads(capsys.readouterr().out)
    assert [row["run"] for row in rows] == ["more/second", "first"]
    assert rows[1]["verdict"].startswith("At 16 callers, nobody interrupting, ")
    assert rows[0]["verdict"].endswith(". 2 points failed.")
    assert [row["load"].replace("\xa0", " ") for row in rows] == ["c = 8, p = 0", "c = 16, p = 0"]
    assert [row["p90_ms"] for row in rows] == pytest.approx([300, 300])
    assert (rows[0]["before"], rows[0]["trend"]) == ("first", "")  # of other loads
    html = (runs / "index.html").read_text()
    page = Page(html)
    cells = [row[0].split(" |")[0] for row in next(iter(page.tables.values()))]
    assert cells == ["run", "more/second", "first"]
    assert f"rehearse compare {runs}/first {runs}/more/second" in html
    assert page.links == ["first/report.html"]


@pytest.mark.parametrize(("now_ms", "worse"), [(249.0, None), (250.0, True), (150.0, False)])
def test_the_trend_is_coloured_where_people_notice_it(now_ms: float, worse: bool | None) -> None:
    earlier = Listed("a", "", "", "", "", load="c = 8", p90_ms={"endpoint": 200.0})
    run = since(earlier._replace(run="b", p90_ms={"endpoint": now_ms}), earlier)
    assert (run.trend, run.worse, run.before) == (f"200 → {now_ms:.0f}", worse, "a")
    lost = since(run._replace(trend="", p90_ms={"endpoint": float("inf")}), earlier)
    assert lost.trend == "" and lost.before == "a"


def test_a_run_that_cannot_be_read_stays_in_the_index(tmp_path: Path) -> None:
    run = serve(tmp_path / "run", bench(grid={"c": [8], "p": [0.0]}, seeds=[0]))
    (run / "experiment.json").write_text("[")
    report(tmp_path)
    assert "cannot be read" in (tmp_path / "index.html").read_text()
