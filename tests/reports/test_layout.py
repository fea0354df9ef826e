from pathlib import Path
from statistics import median

import pytest
from matplotlib.figure import Figure

from reports.figures import headline
from reports.figures.drawing import line
from reports.figures.picture import Picture
from reports.figures.style import looks, style
from reports.runs.answer import Answer, find_answer
from reports.runs.measured import Run, load_run, over_seeds
from tests.reports.served import bench, serve


def answered(run: Run) -> tuple[Answer, Picture | None]:
    """The answer of a run and its picture."""
    answer = find_answer([point.finished for point in run.points], [*run.experiment.grid])
    assert answer is not None
    with style():
        picture = headline.draw(run, answer)
        if picture is not None:
            picture.figure.canvas.draw()
    return answer, picture


def test_the_picture_has_the_setting_and_the_values_of_the_answer(tmp_path: Path) -> None:
    run = load_run(serve(tmp_path / "run", bench()))
    answer, picture = answered(run)
    assert answer.fixed == {"c": 16, "p": 1.0} and picture is not None
    assert picture.title.endswith("p\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}1")  # c is the axis
    (axes,) = picture.figure.axes
    for label, shown in zip(headline.answer_looks(run, answer), axes.texts, strict=False):
        shares = [answer.variants[label][seed].values["continuity"] or 0 for seed in answer.seeds]
        assert shown.get_text() == f"{100 * median(shares):.1f}"
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["8", "16"]


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
    assert axes.lines[0].get_linestyle() == style_of_line
