"""How reports are laid out: the answer first and what was run last."""

import re
from pathlib import Path
from statistics import median

import pytest
from matplotlib.figure import Figure

from reports.figures import headline
from reports.figures.drawing import line, whole_numbers
from reports.figures.picture import Picture
from reports.figures.style import looks, style
from reports.pages.html import write_report
from reports.runs.answer import Answer, find_answer
from reports.runs.measured import Run, load_run, over_seeds
from tests.conftest import render_nothing
from tests.reports import lived
from tests.reports.served import bench, serve

PARTS = ("results", "pictures", "honesty", "run")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("layout")
    return {"bench": serve(folder / "bench", bench()), "live": lived.serve_live(folder / "live")}


@pytest.fixture(scope="module")
def pages(folders: dict[str, Path]) -> dict[str, str]:
    with pytest.MonkeyPatch.context() as patch:
        render_nothing(patch)
        return {name: write_report(folder).read_text() for name, folder in folders.items()}


@pytest.mark.parametrize("name", ["bench", "live"])
def test_the_answer_comes_first_and_what_was_run_last(pages: dict[str, str], name: str) -> None:
    order = ['class="answer"', 'id="answer"', 'class="tiles"', *(f'id="{part}"' for part in PARTS)]
    places = [pages[name].index(text) for text in order]
    assert places == sorted(places)


@pytest.mark.parametrize("name", ["bench", "live"])
def test_every_value_of_a_card_has_a_name(pages: dict[str, str], name: str) -> None:
    """On a phone the head of a table is not shown, so that each cell must say what it is."""
    html = pages[name]
    tables = re.findall(r'<table class="[^"]*cards[^"]*">.*?</table>', html, re.DOTALL)
    assert len(tables) >= 3
    for table in tables:
        cells = re.findall(r"<td[^>]*>", "".join(re.findall(r"<tbody>.*?</tbody>", table, re.DOTALL)))
        assert cells and all("data-label=" in cell for cell in cells)
    assert all("stack" in table for table in re.findall(r"<table[^>]*>", html) if "cards" not in table)


def answered(run: Run) -> tuple[Answer, Picture | None]:
    """The answer of a run and its picture."""
    answer = find_answer([point.finished for point in run.points], [*run.experiment.grid])
    assert answer is not None
    with style():
        picture = headline.draw(run, answer)
        if picture is not None:
            picture.figure.canvas.draw()
    return answer, picture


def test_sentence_tiles_and_picture_are_of_one_setting(tmp_path: Path) -> None:
    run = load_run(serve(tmp_path / "run", bench()))
    answer, picture = answered(run)
    assert answer.fixed == {"c": 16, "p": 1.0} and picture is not None
    assert "p\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}1" in picture.title and "c" not in picture.title.split("at")[-1]
    (axes,) = picture.figure.axes
    for label, shown in zip(headline.answer_looks(run, answer), axes.texts, strict=False):
        shares = [answer.variants[label][seed].values["continuity"] or 0 for seed in answer.seeds]
        assert shown.get_text() == f"{100 * median(shares):.1f}"
    assert [tick.get_text() for tick in axes.get_xticklabels()] == [str(c) for c in run.values("c")]


def test_one_load_is_shown_as_bars_and_one_number_not_at_all(tmp_path: Path) -> None:
    _, picture = answered(load_run(serve(tmp_path / "run", bench(grid={"c": [16]}))))
    assert picture is not None
    (axes,) = picture.figure.axes
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["vllm_omni", "liveserve"]
    alone = serve(tmp_path / "one", bench(grid={"c": [16]}, engines=["liveserve"]))
    assert answered(load_run(alone))[1] is None


@pytest.mark.parametrize(("loads", "style_of_line"), [([2, 16], "None"), ([2, 4, 16], "-")])
def test_two_points_are_not_joined(tmp_path: Path, loads: list[int], style_of_line: str) -> None:
    run = load_run(serve(tmp_path / "run", bench(grid={"c": loads}, seeds=[0])))
    (variant, *_), axes = run.variants, Figure().subplots()
    spreads = {c: over_seeds(run.at(variant, c=c), "audio_ttfp_p50") for c in loads}
    line(axes, spreads, looks(run.variants)[variant], "one")
    assert axes.lines[0].get_linestyle() == style_of_line and axes.lines[0].get_marker() != "None"


@pytest.mark.parametrize("high", [3, 5, 12, 17, 40, 260])
def test_what_is_counted_has_whole_ticks(high: int) -> None:
    axes = Figure().subplots()
    axes.plot([0, 1], [0, high])
    whole_numbers(axes.yaxis)
    ticks = axes.get_yticks()
    assert len(ticks) > 2 and all(tick == round(tick) for tick in ticks)
