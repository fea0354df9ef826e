"""Pictures and pages of traces: drawn for every kind of trace, self-contained, the same bytes each time."""

import re
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from reports.figures.picture import LeftOut, Picture
from reports.figures.style import style
from reports.traces import arrivals, sessions, waveform
from reports.traces.fidelity import chance, verdict, write_fidelity_page
from reports.traces.numbers import short, tables
from reports.traces.page import write_trace_page
from reports.traces.trace_figures import probabilities, shown, survival
from tests.reports.page import Page
from tests.workloads.test_nominal import SPOKEN, later
from workloads.generators.speech import SpeechParams, speech_sessions
from workloads.registry import make_trace
from workloads.trace import Trace
from workloads.transforms.transform import thin

VOICE = {"sessions": 30, "p": 0.5}


def draw(picture, trace: Trace, other: Trace | None = None) -> Picture | LeftOut:
    with style():
        return picture(shown(trace, "this", other, "that"))


def names(folder: Path) -> set[str]:
    return {path.stem for path in folder.glob("*.png")}


def test_the_page_holds_statistics_and_pictures_and_needs_nothing_else(tmp_path: Path) -> None:
    path = write_trace_page(make_trace("voice", VOICE, 1), "voice.parquet", tmp_path)
    page = Page(path.read_text())
    assert all(link.startswith("#") for link in page.links)
    assert not page.tags & {"script", "link", "img", "iframe"}
    assert len(page.ids) == len(set(page.ids))
    assert {"arrivals", "gaps", "lengths", "sessions"} <= set(page.ids)
    assert ["sessions", "30"] in page.tables["Arrivals"]
    assert [row[0] for row in page.tables["Quantities"]][:2] == ["", "turns_per_session"]
    for name in ("arrivals", "gaps", "lengths", "sessions"):
        assert {p.suffix for p in tmp_path.glob(f"{name}.*")} == {".svg", ".pdf", ".png"}
    assert "What one user sends: workload voice says how long its users speak but not what" in path.read_text()


def test_the_same_trace_gives_the_same_bytes(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        write_trace_page(make_trace("offline", {}, 1), "o", tmp_path / folder)
    first = {path.name: path.read_bytes() for path in (tmp_path / "a").iterdir()}
    assert first == {path.name: path.read_bytes() for path in (tmp_path / "b").iterdir()}


@pytest.mark.usefixtures("unrendered")  # but for the PNG
@pytest.mark.parametrize(
    ("name", "params", "other"),
    [
        ("poisson", {"modality": "text", "reply": "text"}, set()),
        ("poisson", {"requests": 1}, {"arrivals", "gaps", "lengths"}),
        ("gamma", {"cv": 10, "requests": 5000}, set()),
        ("voice", {"sessions": 2, "turns": 1}, {"gaps"}),
        ("offline", {}, {"arrivals", "gaps", "sessions"}),
        ("metronome", {"sessions": 20}, {"waveform"}),
    ],
)
def test_any_workload_can_be_drawn(tmp_path: Path, name: str, params: dict, other: set[str]) -> None:
    """`other`: pictures that it has and most have not, or the other way round."""
    write_trace_page(make_trace(name, params, 0), "this", tmp_path)
    assert names(tmp_path) == {"arrivals", "gaps", "lengths", "sessions"} ^ other


@pytest.mark.usefixtures("unrendered")
def test_two_traces_are_drawn_together(tmp_path: Path) -> None:
    page = write_trace_page(make_trace("poisson", {}, 0), "this", tmp_path, make_trace("voice", VOICE, 1), "that")
    assert names(tmp_path) == {"arrivals", "gaps", "lengths", "sessions"}
    assert "against those of that" in page.read_text()


@pytest.mark.usefixtures("unrendered")
def test_arrivals_at_one_instant_leave_no_picture_of_an_earlier_page(tmp_path: Path) -> None:
    write_trace_page(make_trace("voice", VOICE, 1), "before", tmp_path)
    same = Trace.from_turns(replace(SPOKEN, session=session, arrival_s=5.0) for session in range(9))
    page = write_trace_page(same, "after", tmp_path)
    assert names(tmp_path) == {"sessions"}
    assert "Lengths: nothing differs: new tokens of a turn 26; tokens of a reply 40;" in page.read_text()
    assert "Arrivals over time: all its arrivals are at one instant." in page.read_text()


@pytest.mark.usefixtures("unrendered")
@pytest.mark.parametrize("sessions", [2, 3, 9, 10, 11, 14])
def test_few_arrivals_are_drawn_or_left_out(sessions: int, tmp_path: Path) -> None:
    trace = make_trace("voice", {"sessions": sessions}, 0)
    page = write_trace_page(trace, "few", tmp_path).read_text()
    assert ("gaps" in names(tmp_path)) == ("too few arrivals" not in page and "fewer than three" not in page)
    assert sessions > 9 or "gaps" not in names(tmp_path)


def test_the_gaps_are_held_against_the_law_that_was_asked_for() -> None:
    picture = draw(arrivals.gaps, make_trace("gamma", {"cv": 2, "rate": 4, "requests": 20_000}, 0))
    assert "from the Gamma law with a rate of 4/s, CV 2." in picture.caption
    distance = re.search(r"distance (\d\.\d+)", picture.caption)
    assert distance and float(distance[1]) < 0.02


@pytest.mark.parametrize(
    ("name", "params", "law"),
    [
        ("poisson", {"rate": 3}, "Poisson law with a rate of 3/s"),
        ("weibull", {"rate": 3, "cv": 2}, "Weibull law with a rate of 3/s, CV 2"),
        ("interactive", {"sessions": 3000}, "Poisson law with a rate of 0.5/s"),
    ],
)
def test_other_workloads_have_their_laws(name: str, params: dict, law: str) -> None:
    picture = draw(arrivals.gaps, make_trace(name, {**params, **({"requests": 3000} if "rate" in params else {})}, 0))
    found = re.search(r"distance (\d\.\d+) from the (.*)\.$", picture.caption)
    assert found and found[2] == law and float(found[1]) < 1.63 / np.sqrt(3000)


def test_a_trace_that_was_thinned_is_held_against_its_own_rate() -> None:
    picture = draw(arrivals.gaps, thin(make_trace("gamma", {"cv": 3, "rate": 4, "requests": 2000}, 0), 0.5))
    assert "Poisson law with its own rate of" in picture.caption


def test_coarse_times_are_said() -> None:
    turns = [replace(SPOKEN, session=i, arrival_s=3.0 * (i // 10)) for i in range(100)]
    picture = draw(arrivals.gaps, Trace.from_turns(turns))
    assert "91% of the gaps are 0: times are coarse" in picture.caption


def test_sessions_show_twenty_lanes_and_interruptions_in_time() -> None:
    turns = [replace(SPOKEN, barge_in_after_s=3.0), later(1, think_s=1.0, barge_in_after_s=30.0)]
    turns += [replace(SPOKEN, session=i, arrival_s=float(i)) for i in range(1, 40)]
    picture = draw(sessions.draw, Trace.from_turns(turns))
    (panel,) = picture.figure.axes
    assert [text.get_text() for text in panel.get_yticklabels()] == [str(i) for i in range(20)]
    assert picture.caption.endswith("n = 21 turns.")
    (marks,) = [line for line in panel.lines if line.get_marker() == "|"]
    assert marks.get_xdata().tolist() == [5.0]


def test_a_session_that_comes_back_days_later_does_not_squeeze_the_others() -> None:
    turns = [replace(SPOKEN, session=i, arrival_s=float(i)) for i in range(9)]
    turns.append(replace(SPOKEN, session=3, turn=1, arrival_s=200_000.0))
    picture = draw(sessions.draw, Trace.from_turns(turns))
    assert picture.figure.axes[0].get_xlim()[1] < 100
    assert picture.caption.endswith("n = 10 turns, 1 of them beyond the right edge.")


def test_recorded_or_synthetic_speech_is_drawn_and_named() -> None:
    pytest.importorskip("webrtcvad")
    trace = speech_sessions(SpeechParams(sessions=8, p=0.6), 2)
    picture = draw(waveform.draw, trace)
    assert "Synthetic speech" in picture.caption
    assert any(line.get_label() == "speech (webrtcvad)" for line in picture.figure.axes[0].lines)


def test_curves_stay_small_and_keep_both_ends() -> None:
    values = np.random.default_rng(0).lognormal(0, 2, 200_000)
    x, y = survival(values)
    assert len(x) < 600
    assert (x[0], x[-1]) == (values.min(), values.max())
    assert y[0] == 1 and (np.diff(y) < 0).all()
    for n in (1, 2, 50, 200_000):
        p = probabilities(n)
        assert (p > 0).all() and (p < 1).all() and (np.diff(p) > 0).all() and len(p) < 600


def test_numbers_are_short_and_missing_ones_are_dashes() -> None:
    assert [short(v) for v in (None, 3, 0.12345, 12345.6, 1_000_000)] == ["–", "3", "0.123", "12,346", "1,000,000"]
    found = {table.title: table for table in tables(make_trace("poisson", {"requests": 1}, 0))}
    assert ["rate, 1/s", "–"] in found["Arrivals"].rows
    assert set(found) == {"Arrivals", "Quantities", "Speech"}


@dataclass(frozen=True)
class Compared:
    workload: str
    source: str
    column: str
    unit: str
    real: np.ndarray
    ours: np.ndarray
    ks: float
    note: str


def test_fidelity_names_every_column_with_its_distance_and_what_is_wrong(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    comparisons = [
        Compared("rag", "rag.csv", "think", "s", rng.lognormal(3, 1, 900), rng.lognormal(3, 1, 900), 0.03, "fits"),
        Compared("rag", "rag.csv", "turns", "", rng.geometric(0.5, 99), rng.geometric(0.5, 99), 0.08, "so <so>"),
        Compared("chat", "chat.csv", "reply tokens", "tokens", np.ones(5), rng.lognormal(3, 1, 9), 1.0, "no"),
        Compared("rag", "other.csv", "turns", "", rng.geometric(0.5, 99), rng.geometric(0.5, 99), 0.01, ""),
    ]
    page = Page(write_fidelity_page(comparisons, tmp_path).read_text())
    assert all(link.startswith("#") for link in page.links)
    head, *rows = page.tables["Columns"]
    assert head[-3:] == ["chance", "fit", "note"]
    assert [row[0] for row in rows] == ["rag", "rag", "chat", "rag"]
    assert [row[-2] for row in rows] == ["good", "fair", "poor", "good"]
    assert rows[1][-1] == "so <so>"
    assert rows[2][1] == "reply tokens | chat.csv"
    assert names(tmp_path) == {"fidelity_rag", "fidelity_chat"}
    assert len(page.ids) == len(set(page.ids))
    assert verdict(0.05) == "good" and chance(comparisons[0]) == pytest.approx(0.064, abs=1e-3)
