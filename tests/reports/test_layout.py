"""How reports are laid out: the answer first and what was run last."""

import re
from pathlib import Path

import pytest

from reports.figures import headline
from reports.figures.drawing import line, whole_numbers
from reports.figures.picture import Picture
from reports.figures.style import looks, style
from reports.pages.html import write_report
from reports.runs.answer import find_answer
from reports.runs.measured import Run, load_run, over_seeds
from tests.conftest import render_nothing
from tests.reports import lived
from tests.reports.served import bench, serve


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
    html = pages[name]
    places = [
        html.index(text)
        for text in (
            'class="answer"',
            'id="answer"',
            'class="tiles"',
            'id="results"',
            'id="pictures"',
            'id="honesty"',
            'id="run"',
        )
    ]
    assert places == sorted(places)


@pytest.mark.parametrize("name", ["bench", "live"])
def test_every_value_of_a_card_has_a_name(pages: dict[str, str], name: str) -> None:
    """On a phone the head of a table is not shown, so that each cell must say what it is."""
    html = pages[name]
    tables = re.findall(r'<table class="[^"]*cards[^"]*">.*?</table>', html, re.DOTALL)
    assert len(tables) >= 3
    for table in tables:
        bodies = re.findall(r"<tbody>.*?</tbody>", table, re.DOTALL)
        cells = [cell for body in bodies for cell in re.findall(r"<td[^>]*>", body)]
        assert cells and all("data-label=" in cell for cell in cells)
    grids = [table for table in re.findall(r"<table[^>]*>", html) if "cards" not in table]
    assert all("stack" in table for table in grids)


def test_sentence_tiles_and_picture_are_of_one_setting(tmp_path: Path) -> None:
    run = load_run(serve(tmp_path / "run", bench()))
    answer = find_answer([point.finished for point in run.points], [*run.experiment.grid])
    assert answer is not None and answer.fixed == {"c": 16, "p": 1.0}
    picture = drawn(run)
    assert "p\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}1" in picture.title and "c" not in picture.title.split("at")[-1]
    (axes,) = picture.figure.axes
    last = {label: axes.texts[index].get_text() for index, label in enumerate(headline.answer_looks(run, answer))}
    for label, text in last.items():
        points = [answer.variants[label][seed] for seed in answer.seeds]
        middle = sorted(100 * (point.values["continuity"] or 0) for point in points)[1]
        assert text == f"{middle:.1f}"
    assert [tick.get_text() for tick in axes.get_xticklabels()] == [str(c) for c in run.values("c")]


def test_one_load_is_shown_as_bars_and_one_number_not_at_all(tmp_path: Path) -> None:
    run = load_run(serve(tmp_path / "run", bench(grid={"c": [16]})))
    (axes,) = drawn(run).figure.axes
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["vllm_omni", "liveserve"]
    alone = load_run(serve(tmp_path / "one", bench(grid={"c": [16]}, engines=["liveserve"])))
    answer = find_answer([point.finished for point in alone.points], ["c"])
    assert answer is not None
    with style():
        assert headline.draw(alone, answer) is None


def drawn(run: Run) -> Picture:
    answer = find_answer([point.finished for point in run.points], [*run.experiment.grid])
    assert answer is not None
    with style():
        picture = headline.draw(run, answer)
        assert picture is not None
        picture.figure.canvas.draw()
    return picture


@pytest.mark.parametrize(("loads", "style_of_line"), [([2, 16], "None"), ([2, 4, 16], "-")])
def test_two_points_are_not_joined(tmp_path: Path, loads: list[int], style_of_line: str) -> None:
    from matplotlib.figure import Figure

    run = load_run(serve(tmp_path / "run", bench(grid={"c": loads}, seeds=[0])))
    (variant, *_), axes = run.variants, Figure().subplots()
    spreads = {c: over_seeds(run.at(variant, c=c), "audio_ttfp_p50") for c in loads}
    line(axes, spreads, looks(run.variants)[variant], "one")
    assert axes.lines[0].get_linestyle() == style_of_line and axes.lines[0].get_marker() != "None"


@pytest.mark.parametrize("high", [3, 5, 12, 17, 40, 260])
def test_what_is_counted_has_whole_ticks(high: int) -> None:
    from matplotlib.figure import Figure

    axes = Figure().subplots()
    axes.plot([0, 1], [0, high])
    whole_numbers(axes.yaxis)
    ticks = axes.get_yticks()
    assert len(ticks) > 2 and all(tick == round(tick) for tick in ticks)
