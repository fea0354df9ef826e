"""Pictures of turn-taking: what they show of a scripted server, and when there are none."""

import hashlib
import json
import re
from pathlib import Path

import numpy as np
import pytest
from matplotlib.colors import to_hex

from reports.figures import call_timeline, turn_taking
from reports.figures.picture import LeftOut, Picture
from reports.figures.style import BROKEN, style
from reports.pages.html import write_report
from reports.runs.measured import Run, load_run
from tests.reports import open_calls, served
from tests.reports.page import Page


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return open_calls.serve(tmp_path_factory.mktemp("run"), open_calls.experiment())


@pytest.fixture(scope="module")
def run(folder: Path) -> Run:
    return load_run(folder)


def drawn(draw, run: Run) -> Picture:
    with style():
        picture = draw(run)
    picture.figure.canvas.draw()
    return picture


def test_each_rate_and_delay_over_the_number_of_calls(run: Run) -> None:
    picture = drawn(turn_taking.draw, run)
    panels = picture.figure.axes
    assert len(panels) == len(turn_taking.DELAYS | turn_taking.RATES)
    lines = {line.get_label(): line for line in panels[0].lines if not line.get_label().startswith("_")}
    assert set(lines) == {"vllm_omni", "liveserve"}
    x, y = lines["liveserve"].get_data()
    assert list(x) == [1, 16]
    assert np.allclose(y, [1000 * (0.2 + open_calls.latency_s(c)) for c in (1, 16)])
    (stop,) = [panel for panel in panels if panel.get_title(loc="left").startswith("time to stop")]
    shown = [line.get_ydata() for line in stop.lines if not line.get_label().startswith("_")]
    assert np.allclose(shown, 1000 * open_calls.STOPS_S)
    assert "silence_duration_ms" in picture.figure.get_suptitle()
    assert "seeds 0, 1" in picture.caption


def test_patience_trades_delay_for_takeovers(run: Run) -> None:
    picture = drawn(turn_taking.trade, run)
    for panel, c in zip(picture.figure.axes, (1, 16), strict=True):
        x, y = panel.lines[0].get_data()
        assert np.allclose(x, [1000 * (patience_s + open_calls.latency_s(c)) for patience_s in (0.2, 0.8)])
        assert y[0] > y[1]
        assert [text.get_text() for text in panel.texts][:2] == ["200", "800"]


def test_a_call_with_both_channels(run: Run) -> None:
    picture = drawn(call_timeline.draw, run)
    panels = picture.figure.axes
    assert [panel.get_title(loc="left") for panel in panels] == ["vllm_omni", "liveserve"]
    session = int(picture.caption.split("session ")[1].split(",")[0])
    point = run.at(run.variants[0], c=16, silence_duration_ms=200)[0]
    events = point.events(session)
    begins = (events["t"] - events["value"])[events["kind"] == "user_speech"]
    bars = {(round(bar.get_x(), 6), round(bar.get_width(), 6)) for bar in panels[0].patches if bar.get_y() > 0}
    wanted = events[events["kind"] == "user_speech"]
    assert bars == {
        (round(t - value - begins.min(), 6), round(max(value, 0.02), 6))
        for t, value in zip(wanted["t"], wanted["value"], strict=True)
    }
    both = [patch for patch in panels[0].collections if to_hex(patch.get_facecolor()[0]) == BROKEN]
    over = point.all_requests.query(f"session == {session}")["talk_over_s"].sum()
    widths = [np.ptp(patch.get_paths()[0].vertices[:, 0]) for patch in both]
    assert sum(widths) == pytest.approx(over)


@pytest.mark.usefixtures("unrendered")
def test_waveforms_where_the_sound_was_kept(folder: Path, run: Run) -> None:
    """The file's clock is another than the log's: the user's first sound is where both meet."""
    import soundfile

    chosen = int(drawn(call_timeline.draw, run).caption.split("session ")[1].split(",")[0])
    session = (chosen + 1) % 8  # of the calls that were kept, one is drawn
    point = run.at(run.variants[0], c=16, silence_duration_ms=200)[0]
    rate = 24_000
    sound = np.zeros((10 * rate, 2))
    sound[3 * rate : 4 * rate, 0] = sound[6 * rate : 7 * rate, 1] = 0.5
    saved, manifest = point.record.folder / f"call-{session}.flac", point.record.folder / "manifest.json"
    before = manifest.read_text()
    soundfile.write(saved, sound, rate)
    told = json.loads(before)
    sums = {"bytes": saved.stat().st_size, "sha256": hashlib.sha256(saved.read_bytes()).hexdigest()}
    manifest.write_text(json.dumps(told | {"files": told["files"] | {saved.name: sums}}))
    try:
        picture = drawn(call_timeline.draw, run)
        assert "Waveforms are of the sound that was kept" in picture.caption
        assert f"session {session}," in picture.caption
        (player,) = re.findall('<audio .* src="(.+)">', write_report(folder).read_text())
        assert (folder / player).exists() and player.endswith(f"call-{session}.flac")
        ((times_s, (user, agent)),) = call_timeline.saved_call(point, session, 0.0)
    finally:
        saved.unlink()
        manifest.write_text(before)
    assert times_s[np.argmax(user > 0.5)] == pytest.approx(0, abs=0.021)
    assert times_s[np.argmax(agent > 0.5)] == pytest.approx(3, abs=0.021)


@pytest.mark.usefixtures("unrendered")
def test_reports_have_these_pictures_and_none_that_need_turns_of_the_server(tmp_path: Path) -> None:
    small = open_calls.experiment(grid={"c": [1, 4]}, set={"sessions": 3, "silence_duration_ms": 500}, seeds=[0])
    folder = open_calls.serve(tmp_path / "run", small)
    text = write_report(folder).read_text()
    assert {path.stem for path in (folder / "figures").glob("*.svg")} >= {"turn_taking", "call_timeline"}
    header, *rows = Page(text).section("What callers noticed")
    assert header[-1] == "P95 | ms" and [row[2] for row in rows[:2]] == ["delays", "gaps"], rows
    assert "Turn-taking over the number of calls" in text and "it needs an axis of the server" in text


@pytest.mark.parametrize("draw", [turn_taking.draw, turn_taking.trade, call_timeline.draw])
def test_runs_that_have_no_such_picture(tmp_path: Path, draw) -> None:
    run = load_run(served.serve(tmp_path / "run", served.bench(grid={"c": [8, 16]}, seeds=[0])))
    assert isinstance(draw(run), LeftOut)
    assert not run.duplex
