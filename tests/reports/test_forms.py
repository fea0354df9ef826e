from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from reports.cards import card as cards
from reports.claims.quantities import of, ratio, value
from reports.figures.forms import Plot, bars, distribution, figure, grid, lines, over_time, stacked
from reports.figures.picture import LeftOut, Picture
from reports.figures.style import style
from tests.reports.figure_card import StandIn

PAIR = ["vllm_omni", "liveserve"]
LOADS = [2, 8, 16]
MODELLED = {"nova-fig4", "nova-fig6", "nova-fig8", "omniinfer-attention-memory", "omniinfer-placement"}
"""Cards whose figures ask a model and need no runs."""


def point(engine: str, c: int, seed: int, error: str | None = None) -> Any:
    """The metric is c, twice that of the second engine, and a tenth more for each seed; one turn in two is answered."""
    known = (c if engine == PAIR[0] else 2 * c) * (1 + seed / 10)
    return StandIn(
        point=SimpleNamespace(engine=engine, id=f"{engine}-{c}-{seed}"),
        params={"c": c},
        seed=seed,
        error=error,
        value=lambda name: None if error or name == "unknown" else known,
        requests=pd.DataFrame({"audio_ttfp_s": [known / 10, np.nan], "spoken": [True, True]}),
    )


def panels(error: str | None = None) -> dict[str, Any]:
    points = [point(engine, c, seed, error) for engine in PAIR for c in LOADS for seed in (0, 1, 2)]
    return {"load": SimpleNamespace(points=points), "other": SimpleNamespace(points=[point("x", 1, 7)])}


def drawn(*plots: Plot, caption: str = "A caption.", **more: Any) -> Picture:
    with style():
        found = figure("title", *plots, caption=caption, **more)(panels())
    assert isinstance(found, Picture)
    return found


def named(picture: Picture) -> list[str]:
    return [text.get_text() for text in picture.figure.legends[0].get_texts()]


def xy(line: Any) -> list[list[float]]:
    return np.asarray(line.get_xydata()).tolist()


def marks_of(axes: Any) -> list[list[float]]:
    """Where the paper's values stand."""
    return [xy(line)[0] for line in axes.lines if line.get_markerfacecolor() == "white"]


def test_lines_join_medians_and_name_their_axes_by_metric_and_parameter() -> None:
    picture = drawn(lines("completed_rps", grid("load", PAIR, c=LOADS), marks={"liveserve": {16: 40.0, 8: None}}))
    (axes,) = picture.figure.axes
    first, second = (xy(line) for line in axes.lines if line.get_label() in PAIR)
    assert np.allclose(first, [[2, 2.2], [8, 8.8], [16, 17.6]])  # 1.1 c, of seed 1
    assert np.allclose(second, [[2, 4.4], [8, 17.6], [16, 35.2]])
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("concurrent callers, c", "completed, 1/s")
    assert marks_of(axes) == [[16, 40]]
    assert named(picture) == [*PAIR, "paper"]


def test_values_over_time_are_those_of_the_first_finished_seed() -> None:
    def waits(point: Any) -> tuple[np.ndarray, np.ndarray]:
        return np.array([0.0, 1.0]), np.array([point.seed, point.value("any")])

    series = {engine: of("load", engine, c=8) for engine in PAIR}
    (axes,) = drawn(over_time(waits, series, title="of c = 8", ylabel="wait, ms")).figure.axes
    assert [xy(line) for line in axes.lines] == [[[0, 0], [1, 8000]], [[0, 0], [1, 16000]]]
    assert axes.get_title("left") == "of c = 8, seed 0" and axes.get_xlabel() == "time, s"


def test_bars_stand_in_clusters_and_lie_in_rows() -> None:
    gain = {"c = 2": ratio("x", of("load", "liveserve", c=2), to=of("load", "vllm_omni", c=2))}
    series = {"vllm_omni": {"c = 2": 1.0, "c = 8": 2.0}, "liveserve": gain}
    marks = {"liveserve": {"c = 8": 3.0}}
    rows = bars(None, series, marks=marks, rows=True, text="{:.1f}")
    standing, lying = drawn(bars(None, series, marks=marks), rows).figure.axes
    boxes: list[Any] = [*standing.patches, *lying.patches]
    assert [bar.get_height() for bar in boxes[:3]] == pytest.approx([1, 2, 2])
    assert [bar.get_width() for bar in boxes[3:]] == pytest.approx([1, 2, 2])
    assert [label.get_text() for label in standing.get_xticklabels()] == ["c = 2", "c = 8"]
    assert marks_of(standing) == [pytest.approx([1.2, 3.0])] and marks_of(lying) == [pytest.approx([3.0, 1.2])]
    assert [text.get_text() for text in lying.texts] == ["1.0", "2.0", "2.0"] and lying.yaxis_inverted()


def test_stacked_bars_add_up() -> None:
    parts = {"wait": (lambda point: 1.0, "red"), "work": ("completed_rps", "blue")}
    groups = {f"c = {c}": of("load", "vllm_omni", c=c) for c in LOADS[:2]}
    (axes,) = drawn(stacked(parts, groups, ylabel="time, ms", marks={"c = 8": 0.09})).figure.axes
    upper: list[Any] = axes.patches[2:]
    assert [bar.get_y() for bar in upper] == [1000, 1000]
    assert [text.get_text() for text in axes.texts] == ["3200", "9800"]
    assert xy(axes.lines[0])[0] == pytest.approx([1.38, 90])


def test_a_distribution_ends_at_the_share_that_was_answered() -> None:
    series = {"vllm_omni": of("load", "vllm_omni", c=2)}
    (axes,) = drawn(distribution("audio_ttfp_s", series, marks={"vllm_omni": {50: 0.3}})).figure.axes
    assert np.allclose(xy(axes.lines[0]), [[0.2, 1 / 6], [0.22, 2 / 6], [0.24, 3 / 6]])
    assert xy(axes.lines[1]) == [[0.3, 0.5]]


def test_the_caption_ends_with_the_points_that_are_shown() -> None:
    here = of("load", "liveserve", c=8)
    assert drawn(lines("completed_rps", {"a": {8: here}})).caption.startswith("A caption. Made from 3 points, seeds 0")
    everywhere = drawn(lines(None, {"a": {8: value("completed_rps", here)}})).caption
    assert "Made from 19 points, seeds 0, 1, 2, 7" in everywhere and "bars span" in everywhere


def test_there_is_no_figure_without_a_finished_point_or_a_value() -> None:
    at = {"a": {8: of("load", "liveserve", c=8)}}
    with style():
        failed = figure("t", lines("completed_rps", at), caption="")(panels("it failed"))
        unknown = figure("t", lines("unknown", at), caption="")(panels())
    assert isinstance(failed, LeftOut) and failed.reason == "no point of it is finished"
    assert isinstance(unknown, LeftOut) and unknown.reason == "no value of it was measured"


@pytest.mark.parametrize("name", [name for name in cards.index() if name not in MODELLED])
def test_a_card_has_neither_numbers_nor_a_figure_of_nothing(name: str) -> None:
    card = cards.figures()[name]
    assert not any(found is not None for claim in card.claims for found in claim.measure({}).values())
    with style():
        assert card.draw is None or isinstance(card.draw({}), LeftOut)
