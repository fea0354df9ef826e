import json
from pathlib import Path

import numpy as np
import pytest

from tests.builders import refused, starts
from tests.golden.pinned import check_trace
from tests.workloads.small_files import FILES
from workloads.distributions.lengths import LengthModel
from workloads.registry import WORKLOADS, make_trace
from workloads.statistics.describe import dispersion, gap_cv, lag_1, rate
from workloads.trace import Trace

WITHOUT_FILE = sorted(
    name
    for name, workload in WORKLOADS.items()
    if not any(field.is_required() for field in workload.Params.model_fields.values())
)


@pytest.mark.parametrize("name", WITHOUT_FILE)
def test_every_workload_makes_a_trace_that_its_seed_decides(name: str, tmp_path: Path) -> None:
    trace = make_trace(name, {}, 0)
    assert trace == make_trace(name, {}, 0)
    assert trace != make_trace(name, {}, 1)
    assert trace.header.generator == name
    trace.save(tmp_path / "t.parquet")
    assert Trace.load(tmp_path / "t.parquet") == trace


CUT = ("poisson", "gamma", "voice")
PINNED = (
    *("weibull", "constant", "ramp", "burstgpt_fit", "sharegpt", "servegen", "interactive", "streamingbench"),
    *("omni_mix", "metronome", "gui", "gui_episodes", "offline", "novel", *CUT),
)


@pytest.mark.parametrize("name", PINNED)
def test_golden_trace(name: str) -> None:
    """The same on every machine; a change here makes old and new results incomparable and needs a reason."""
    check_trace(f"trace_{name}", make_trace(name, {"p": 0.3} if name in CUT else {}, 0))


def test_burstgpt_fit_is_bursty_at_its_rate() -> None:
    trace = make_trace("burstgpt_fit", {"modality": "text", "reply": "text", "requests": 20_000, "rate": 4}, 0)
    times = starts(trace)
    assert rate(times) == pytest.approx(4, rel=0.25)
    assert (gap_cv(times) or 0) > 1.7
    assert (dispersion(times, 10.0) or 0) > 10
    assert np.median(trace.columns()["input_tokens"]) == pytest.approx(353, rel=0.05)


def test_the_busiest_window_of_burstgpt_fit_has_the_peak_rate() -> None:
    times = starts(make_trace("burstgpt_fit", {"requests": 32, "peak_rate": 4, "peak_window_s": 4}, 0))
    within_4_s = np.searchsorted(times, times + 4 + 1e-5, side="right") - np.arange(32)
    assert within_4_s.max() == 4 * 4
    with refused("takes more than requests=32; shorten peak_window_s"):
        make_trace("burstgpt_fit", {"requests": 32, "peak_rate": 4}, 0)
    with refused("rate and peak_rate both set the speed"):
        make_trace("burstgpt_fit", {"rate": 4, "peak_rate": 4}, 0)


def test_lengths_of_a_table_stay_pairs_with_their_weights(tmp_path: Path) -> None:
    path = tmp_path / "l.csv"
    path.write_text("input_tokens,output_tokens,weight\n10,1,3\n20,2,1\n30,3,0\n")
    params = {"lengths": str(path), "modality": "text", "requests": 4000}
    columns = make_trace("poisson", params, 0).columns()
    assert set(zip(columns["input_tokens"], columns["output_tokens"], strict=True)) == {(10, 1), (20, 2)}
    assert np.mean(columns["input_tokens"] == 10) == pytest.approx(0.75, abs=0.03)
    with refused("replaces reply_tokens; leave one of them out"):
        make_trace("poisson", {**params, "reply_tokens": 5}, 0)
    path.write_text("input_tokens,output_tokens\n10,0\n")
    with refused("row 2, column 'output_tokens': '0' is less than 1 token"):
        make_trace("poisson", params, 0)


def test_viewers_ask_five_questions_at_the_published_times() -> None:
    columns = make_trace("streamingbench", {"sessions": 2000}, 0).columns()
    assert set(np.bincount(columns["session"])) == {5}
    later = columns["turn"] > 0
    gaps = columns["arrival_s"][later] - np.roll(columns["arrival_s"], 1)[later]
    assert [np.median(gaps), np.percentile(gaps, 90)] == pytest.approx([122, 197], rel=0.05)
    assert columns["visual_tokens"].max() == 60 * 220  # 60 s of video, 220 tokens a second
    assert np.all(columns["input_tokens"] > columns["visual_tokens"])


def test_a_viewer_is_shown_the_video_up_to_the_question(tmp_path: Path) -> None:
    (tmp_path / "q.json").write_text(FILES["streamingbench"][1])  # asked after 31 s
    params = {"path": str(tmp_path / "q.json"), "sessions": 3, "shown_s": 1000}
    assert set(make_trace("streamingbench", params, 0).columns()["visual_tokens"]) == {31 * 220}


@pytest.mark.parametrize(
    ("stamp", "note", "turns"),
    [
        ("00:12450", "1 of 2 questions dropped: their time stamp cannot be read", 1),
        ("02:00:01", "1 of 2 questions dropped: their time stamp is after 7200 s", 1),
        ("02:00:00", None, 2),
        ("-00:00:05", "1 of 2 questions with a negative time stamp, set to 0", 2),
        ("00:24", None, 2),
        ("0:07:8", None, 2),
    ],
)
def test_questions_without_a_good_time_stamp_are_dropped(
    tmp_path: Path, stamp: str, note: str | None, turns: int
) -> None:
    questions = [{"question": "Why?", "time_stamp": text} for text in ("00:00:31", stamp)]
    (tmp_path / "q.json").write_text(json.dumps([{"questions": questions, "video_path": "v"}]))
    trace = make_trace("streamingbench", {"path": str(tmp_path / "q.json"), "sessions": 1}, 0)
    assert len(trace) == turns
    assert [text for text in trace.header.notes if " of 2 questions " in text] == ([note] if note else [])


def test_a_mix_holds_both_kinds_by_the_ratio() -> None:
    trace = make_trace("omni_mix", {"sessions": 400, "rate": 2, "video_share": 0.25, "p": 0.5}, 0)
    columns = trace.columns()
    opening = columns["turn"] == 0
    shows = ~np.isnan(columns["visual_tokens"])
    assert np.sum(opening & shows) == 100
    talks = columns["arrival_s"][opening & ~shows]
    assert rate(talks) == pytest.approx(1.5, rel=0.2)
    assert abs(lag_1(talks) or 0) < 0.2
    assert {name.partition("/")[0] for name in trace.header.streams} == {"streamingbench", "voice"}


@pytest.mark.parametrize(
    ("name", "params", "means", "most"),
    [
        ("offline", {"shape": "dureader"}, (21776, 166), 32_768),
        ("offline", {"shape": "multinews"}, (6916, 394), 32_768),
        ("offline", {"shape": "vcsum"}, (18803, 337), 32_768),
        ("novel", {}, (3500, 1000), 16_384),
    ],
)
def test_documents_have_the_published_lengths(name: str, params: dict[str, str], means: tuple, most: int) -> None:
    columns = make_trace(name, {**params, "requests": 20_000}, 0).columns()
    inputs, outputs = columns["input_tokens"], columns["output_tokens"]
    assert (inputs.mean(), outputs.mean()) == pytest.approx(means, rel=0.02)
    assert (inputs + outputs * (name == "novel")).max() <= most
    assert set(columns["arrival_s"]) == {0.0} or name == "novel"


def test_a_law_goes_through_its_mean_and_p99() -> None:
    drawn = LengthModel.through(166, 754, 10_000, "x").sample(np.random.default_rng(0), 200_000)
    assert [drawn.mean(), np.percentile(drawn, 99)] == pytest.approx([166, 754], rel=0.02)
    widest = float(np.exp(2.3263478740408408**2 / 2))  # P99 over mean: no spread gives more
    assert LengthModel.through(1, widest, 1000, "x").sigma == 2.326
    with pytest.raises(ValueError, match="no lognormal"):
        LengthModel.through(1, 1.0001 * widest, 1000, "x")
