from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from harness.experiments.point import Point
from reports.figures import admission, dashboard, frames, pool
from reports.figures.picture import LeftOut, Picture
from reports.figures.style import style
from reports.pages.html import write_report
from reports.pages.sections import comparison, tiles
from reports.runs.answer import find_answer
from reports.runs.measured import Run, load_run
from reports.tables.columns import FRAMES, shown
from tests.reports import framed
from tests.reports.page import Page
from tests.reports.written import resealed


def broken(point: Point) -> bool:
    return point.engine == "metronome" and point.seed == 2 and point.params["sessions"] == 10


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return framed.serve(tmp_path_factory.mktemp("frames") / "run", framed.calls(), broken)


@pytest.fixture(scope="module")
def run(folder: Path) -> Run:
    return load_run(folder)


@pytest.fixture(scope="module")
def controlled(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The same with a controller."""
    calls = framed.calls(grid={}, set={**framed.calls().set, "admission": "aimd", "sessions": 10})
    return load_run(framed.serve(tmp_path_factory.mktemp("frames") / "run", calls))


@pytest.mark.usefixtures("unrendered")
def test_the_page_has_the_wall_the_latency_and_the_failed_point(folder: Path) -> None:
    html = write_report(folder).read_text()
    header, walled, *rows = Page(html).section("Results")
    assert not [name for name in ("TTFP", "continuity", "wasted") if any(name in cell for cell in header)]
    assert walled[1] == "vllm_realtime"
    by_name = dict(zip((cell.split(" | ")[0] for cell in header), walled, strict=True))
    assert by_name["wall"] == "2 of 3 | 21 to 94 %"  # seeds 0 and 2, with the interval of a share
    assert by_name["wall at"].startswith("70") and by_name["misses"].startswith("0 |")
    assert by_name["latency P99"].startswith("1,600.0")  # the cap of a wait, ms
    assert rows[0][1] == "metronome" and rows[2][-1] == "2 of 3"  # the failed point
    pictures = {path.stem for path in (folder / "figures").iterdir()}
    assert pictures == {"answer", "dashboard_and_user", "gpu_timeline", "kv_pool"}
    assert "no session was rejected" in html


def test_the_dashboard_stays_green_while_users_hear_nothing(run: Run) -> None:
    """The pool is full at 70 s."""
    (point,) = [p for p in run.points if p.variant.engine == "vllm_realtime" and p.params["sessions"] == 10][:1]
    curves: list[Any] = [curve(point) for curve in (frames.latency, frames.speech, frames.misses)]
    latency, speech, misses = curves
    assert latency[latency.index < 70].to_numpy() == pytest.approx(0.004)
    assert latency[latency.index > 70].to_numpy() == pytest.approx(1.6)
    assert (speech[speech.index < 60] == 1).all() and (speech[speech.index > 80] == 0).all()
    assert (misses == 0).all()


def test_every_picture_is_drawn_and_nothing_is_drawn_of_nothing(run: Run, controlled: Run, tmp_path: Path) -> None:
    nothing = load_run(framed.serve(tmp_path / "run", framed.calls(seeds=[0]), lambda point: True))
    with style():
        for module in (dashboard, pool, admission):
            picture = module.draw(controlled)
            assert isinstance(picture, Picture) and all(axes.has_data() for axes in picture.figure.axes)
            assert isinstance(module.draw(nothing), LeftOut)
        assert isinstance(admission.draw(run), LeftOut)  # nobody controls who comes in


def test_over_sockets_the_users_view_is_drawn_and_no_pool(tmp_path: Path) -> None:
    folder = framed.serve(tmp_path / "run", framed.calls(grid={"sessions": [5]}, seeds=[0]))
    for point in load_run(folder).points:
        pd.DataFrame({"due_s": [0.0]}).to_parquet(point.record.folder / "sends.parquet")
    run = load_run(resealed(folder))
    with style():
        assert isinstance(dashboard.draw(run), Picture)
        assert isinstance(pool.draw(run), LeftOut)


def test_who_was_let_in_is_read_off_the_log(controlled: Run) -> None:
    point = controlled.points[0]
    assert (point.value("admitted"), point.value("shed")) == (framed.CAP, 10 - framed.CAP)
    highest = admission.tick_latency(point)
    assert highest.iloc[0] == pytest.approx(framed.FIRST_S)
    assert np.median(highest) == pytest.approx(framed.OTHERS_S)


def verdict_on(run: Run, metric: str) -> dict[str, Any]:
    """What the comparison with the baseline says of a metric in the first row."""
    columns = [*shown(point.values for point in run.points)]
    cells = comparison(run, columns)[0]["rows"][0]["values"]
    return cells[[column.metric for column in columns].index(metric)]


def test_walls_are_compared_as_counts(run: Run, tmp_path: Path) -> None:
    columns = {column.metric for column in shown(point.values for point in run.points)}
    assert {"saturation_measured_s", "wall"} <= columns <= {column.metric for column in FRAMES}
    wall = verdict_on(run, "wall")
    assert (wall["difference"], wall["verdict"]) == ("0 of 3, not 2 of 3", "")  # three runs say little
    many = load_run(framed.serve(tmp_path / "run", framed.calls(seeds=[0, 2, 4, 6, 8], grid={})))
    assert verdict_on(many, "wall")["verdict"] == "better"


def test_the_tiles_have_what_differs_and_name_what_is_alike(tmp_path: Path) -> None:
    many = load_run(framed.serve(tmp_path / "run", framed.calls(seeds=[0, 2, 4, 6, 8], grid={})))
    answer = find_answer([point.finished for point in many.points], [])
    assert answer is not None and answer.named == ["metronome", "vllm_realtime"]
    told = tiles(many, answer, shown(point.values for point in many.points))
    tile = {tile["column"].metric: [value["text"] for value in tile["values"]] for tile in told["tiles"]}
    assert tile["wall"] == ["0 of 5", "5 of 5"]
    assert "deadline_misses" not in tile and "misses" in told["alike"]  # both have none
