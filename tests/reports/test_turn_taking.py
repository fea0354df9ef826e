from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.patches import Rectangle

from reports.figures import call_timeline, turn_taking
from reports.figures.picture import LeftOut, Picture
from reports.figures.style import BROKEN, style
from reports.pages.html import write_report
from reports.runs.measured import Run, load_run
from tests.reports import open_calls, served
from tests.reports.written import resealed


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return open_calls.serve(tmp_path_factory.mktemp("run"), open_calls.experiment())


@pytest.fixture(scope="module")
def run(folder: Path) -> Run:
    return load_run(folder)


def drawn(draw: Callable[[Run], Picture | LeftOut], run: Run) -> Picture:
    with style():
        picture = draw(run)
    assert isinstance(picture, Picture)
    picture.figure.canvas.draw()
    return picture


def named(axes: Axes) -> dict[str, np.ndarray]:
    """The points of the lines with a name."""
    lines = [line for line in axes.lines if not str(line.get_label()).startswith("_")]
    return {str(line.get_label()): np.asarray(line.get_xydata()) for line in lines}


def test_each_rate_and_delay_over_the_number_of_calls(run: Run) -> None:
    picture = drawn(turn_taking.draw, run)
    panels = picture.figure.axes
    assert len(panels) == len(turn_taking.DELAYS | turn_taking.RATES)
    lines = named(panels[0])
    assert set(lines) == {"vllm_omni", "liveserve"}
    assert np.allclose(lines["liveserve"], [[c, 1000 * (0.2 + open_calls.latency_s(c))] for c in (1, 16)])
    (stop,) = [panel for panel in panels if panel.get_title(loc="left").startswith("time to stop")]
    assert all(np.allclose(line[:, 1], 1000 * open_calls.STOPS_S) for line in named(stop).values())
    assert "silence_duration_ms" in picture.figure.get_suptitle() and "seeds 0, 1" in picture.caption


def test_patience_trades_delay_for_takeovers(run: Run) -> None:
    for panel, c in zip(drawn(turn_taking.trade, run).figure.axes, (1, 16), strict=True):
        (delay, takeovers) = np.asarray(panel.lines[0].get_xydata()).T
        assert np.allclose(delay, [1000 * (patience_s + open_calls.latency_s(c)) for patience_s in (0.2, 0.8)])
        assert takeovers[0] > takeovers[1]
        assert [text.get_text() for text in panel.texts][:2] == ["200", "800"]


def chosen(picture: Picture) -> int:
    """The session that it shows."""
    return int(picture.caption.split("session ")[1].split(",")[0])


def test_a_call_with_both_channels(run: Run) -> None:
    picture = drawn(call_timeline.draw, run)
    panels = picture.figure.axes
    assert [panel.get_title(loc="left") for panel in panels] == ["vllm_omni", "liveserve"]
    point = run.at(run.variants[0], c=16, silence_duration_ms=200)[0]
    said = point.events(chosen(picture)).query("kind == 'user_speech'")
    begins = said["t"] - said["value"]
    wanted = np.column_stack([begins - begins.min(), said["value"].clip(lower=0.02)])
    above = [bar for bar in panels[0].patches if isinstance(bar, Rectangle) and bar.get_y() > 0]
    assert np.allclose(sorted((bar.get_x(), bar.get_width()) for bar in above), sorted(wanted.tolist()))
    filled: list[Any] = [*panels[0].collections]
    both = [patch for patch in filled if to_hex(patch.get_facecolor()[0]) == BROKEN]
    over = point.all_requests.query(f"session == {chosen(picture)}")["talk_over_s"].sum()
    assert sum(np.ptp(patch.get_paths()[0].vertices[:, 0]) for patch in both) == pytest.approx(over)


@pytest.mark.usefixtures("unrendered")
def test_kept_sound_is_drawn_on_the_clock_of_the_log(tmp_path: Path) -> None:
    """The user's first sound is where the clocks of the file and the log meet."""
    one_call = {"sessions": 1, "silence_duration_ms": 500}
    small = open_calls.experiment(engines=["vllm_omni"], grid={"c": [1]}, set=one_call, seeds=[0])
    folder = open_calls.serve(tmp_path / "run", small)
    (point,) = load_run(folder).points
    sound = np.zeros((240_000, 2))  # 10 s
    sound[72_000:96_000, 0] = 0.5  # the user from 3 to 4 s
    sound[144_000:168_000, 1] = 0.5  # the agent from 6 to 7 s
    soundfile.write(point.record.folder / "call-0.flac", sound, 24_000)
    run = load_run(resealed(folder))
    ((times_s, (user, agent)),) = call_timeline.saved_call(run.points[0], 0, 0.0)
    assert times_s[np.argmax(user > 0.5)] == pytest.approx(0, abs=0.021)
    assert times_s[np.argmax(agent > 0.5)] == pytest.approx(3, abs=0.021)
    assert "Waveforms are of the sound that was kept" in drawn(call_timeline.draw, run).caption
    assert "<audio controls" in write_report(folder).read_text()


def test_a_run_without_open_microphones_has_no_such_picture(tmp_path: Path) -> None:
    run = load_run(served.serve(tmp_path / "run", served.bench(grid={"c": [8, 16]}, seeds=[0])))
    assert all(isinstance(draw(run), LeftOut) for draw in (turn_taking.draw, turn_taking.trade, call_timeline.draw))
