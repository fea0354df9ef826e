import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reports.figures.picture import LeftOut, Picture
from reports.figures.style import style
from reports.traces import arrivals, sessions
from reports.traces.fidelity import row, verdict
from reports.traces.page import write_trace_page
from reports.traces.trace_figures import Shown, shown
from tests.reports.page import Page
from tests.workloads.test_nominal import SPOKEN
from workloads.registry import make_trace
from workloads.trace import Trace
from workloads.transforms.transform import thin

VOICE = {"sessions": 30, "p": 0.5}
PICTURES = {"arrivals", "gaps", "lengths", "sessions"}


def draw(picture: Callable[[list[Shown]], Picture | LeftOut], trace: Trace) -> Picture:
    with style():
        found = picture(shown(trace, "this", None, "that"))
    assert isinstance(found, Picture)
    return found


def at(*arrivals_s: float) -> Trace:
    """Spoken turns of sessions that arrive then."""
    return Trace.from_turns(replace(SPOKEN, session=i, arrival_s=t) for i, t in enumerate(arrivals_s))


def names(folder: Path) -> set[str]:
    return {path.stem for path in folder.glob("*.png")}


def test_the_page_holds_statistics_and_pictures_and_needs_nothing_else(tmp_path: Path) -> None:
    path = write_trace_page(make_trace("voice", VOICE, 1), "voice.parquet", tmp_path)
    page = Page(path.read_text())
    assert all(link.startswith("#") for link in page.links)
    assert not page.tags & {"script", "link", "img", "iframe"}
    assert set(page.ids) >= PICTURES
    assert ["sessions", "30"] in page.tables["Arrivals"]
    assert all({p.suffix for p in tmp_path.glob(f"{name}.*")} == {".svg", ".pdf", ".png"} for name in PICTURES)


def test_the_same_trace_gives_the_same_bytes(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        write_trace_page(make_trace("offline", {}, 1), "o", tmp_path / folder)
    first = {path.name: path.read_bytes() for path in (tmp_path / "a").iterdir()}
    assert first == {path.name: path.read_bytes() for path in (tmp_path / "b").iterdir()}


@pytest.mark.usefixtures("unrendered")  # but for the PNG
@pytest.mark.parametrize(
    ("name", "params", "drawn"),
    [
        ("poisson", {"modality": "text", "reply": "text"}, PICTURES),
        ("poisson", {"requests": 1}, {"sessions"}),
        ("voice", {"sessions": 2, "turns": 1}, PICTURES - {"gaps"}),  # there is one gap
        ("offline", {}, {"lengths"}),
        ("metronome", {"sessions": 20}, PICTURES | {"waveform"}),
    ],
)
def test_a_trace_has_the_pictures_that_its_columns_allow(
    tmp_path: Path, name: str, params: dict, drawn: set[str]
) -> None:
    write_trace_page(make_trace(name, params, 0), "this", tmp_path)
    assert names(tmp_path) == drawn


@pytest.mark.usefixtures("unrendered")
def test_arrivals_at_one_instant_leave_no_picture_of_an_earlier_page(tmp_path: Path) -> None:
    write_trace_page(make_trace("voice", VOICE, 1), "before", tmp_path)
    text = write_trace_page(at(*[5.0] * 9), "after", tmp_path).read_text()
    assert names(tmp_path) == {"sessions"}
    assert "Lengths: nothing differs: new tokens of a turn 26; tokens of a reply 40;" in text
    assert "Arrivals over time: all its arrivals are at one instant." in text


@pytest.mark.parametrize(("sessions", "reason"), [(2, "fewer than three arrivals"), (3, "too few arrivals")])
def test_few_arrivals_have_no_picture_of_gaps(sessions: int, reason: str) -> None:
    found = arrivals.gaps(shown(at(*range(sessions)), "few", None, ""))
    assert isinstance(found, LeftOut) and found.reason.startswith(reason)


@pytest.mark.parametrize(
    ("name", "params", "law"),
    [
        ("gamma", {"cv": 2, "rate": 4, "requests": 20_000}, "Gamma law with a rate of 4/s, CV 2"),
        ("poisson", {"rate": 3, "requests": 3000}, "Poisson law with a rate of 3/s"),
        ("weibull", {"rate": 3, "cv": 2, "requests": 3000}, "Weibull law with a rate of 3/s, CV 2"),
    ],
)
def test_gaps_are_compared_with_the_law_that_was_asked_for(name: str, params: dict, law: str) -> None:
    trace = make_trace(name, params, 0)
    found = re.search(r"distance (\d\.\d+) from the (.*?)\.(?: |$)", draw(arrivals.gaps, trace).caption)
    assert found and found[2] == law and float(found[1]) < 1.63 / np.sqrt(len(trace.sessions))


def test_gaps_without_a_law_are_compared_with_their_rate_and_coarse_times_are_named() -> None:
    thinned = thin(make_trace("gamma", {"cv": 3, "rate": 4, "requests": 2000}, 0), 0.5)
    assert "Poisson law with its own rate of" in draw(arrivals.gaps, thinned).caption
    coarse = at(*(3.0 * (i // 10) for i in range(100)))
    assert "91% of the gaps are 0: times are coarse" in draw(arrivals.gaps, coarse).caption


def test_a_session_that_comes_back_days_later_does_not_squeeze_the_others() -> None:
    turns = [replace(SPOKEN, session=i, arrival_s=float(i)) for i in range(9)]
    turns.append(replace(SPOKEN, session=3, turn=1, arrival_s=200_000.0))
    picture = draw(sessions.draw, Trace.from_turns(turns))
    assert picture.figure.axes[0].get_xlim()[1] < 100
    assert picture.caption.endswith("n = 10 turns, 1 of them beyond the right edge.")


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


def test_a_fitted_column_has_its_distance_the_distance_of_chance_and_its_note() -> None:
    some = np.arange(900.0)
    one: Any = Compared("rag", "rag.csv", "turns", "", some, some, 0.08, "a note")
    found = row(one)
    assert (found["ks"], found["verdict"], found["note"]) == ("0.080", "fair", "a note")
    assert found["chance"] == "0.064"  # 1.358 * sqrt(2 / 900)


def test_a_distance_is_good_to_5_and_fair_to_10_percent() -> None:
    assert [verdict(ks) for ks in (0.05, 0.051, 0.10, 0.101)] == ["good", "fair", "fair", "poor"]
