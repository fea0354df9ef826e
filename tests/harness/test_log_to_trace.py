"""Traces made of recorded runs: played again, they give the same schedule of users."""

import shutil
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from harness.experiments.experiment import Experiment
from harness.experiments.provenance import environment
from harness.records.log_to_trace import KEYS, from_record, recorded
from harness.records.record import write_failure, write_record
from harness.replays.expand import expand
from harness.replays.worker.measure import measure
from tests import builders
from tests.engines.replays import replay
from tests.metrics.event_log import EventLog
from workloads.errors import UserError
from workloads.registry import make_trace
from workloads.trace import Trace, Turn

MICROSECOND = 1e-6
SCHEDULE = ["session_start", "turn_start", "turn_end", "barge_in", "barge_in_missed", "playback_done"]


@cache
def users() -> Trace:
    return make_trace("voice", {"sessions": 12, "turns": 3, "p": 0.6}, 3)


def play(trace: Trace, engine: str, **client: Any) -> pd.DataFrame:
    return replay(engine, {}, {}, client, trace, seed=7).events.to_pandas().astype({"kind": str})


@cache
def first_run(engine: str, c: int | None) -> pd.DataFrame:
    return play(users(), engine, c=c)


def schedule(events: pd.DataFrame) -> Any:
    """When each user did what, by session, turn and kind."""
    return events[events["kind"].isin(SCHEDULE)].set_index([*KEYS, "kind"])["t"].sort_index()


@pytest.mark.parametrize(("engine", "c", "arrivals"), [("vllm_omni", None, "absolute"), ("liveserve", 4, "relative")])
def test_a_recorded_run_replays_to_the_microsecond(engine: str, c: int | None, arrivals: Any) -> None:
    first = first_run(engine, c)
    again = play(recorded(users(), first, arrivals), engine)
    was, came = schedule(first), schedule(again)
    assert {"barge_in", "barge_in_missed"} <= {*was.index.get_level_values("kind")}
    assert came.index.equals(was.index)
    apart_s = (came - was).abs()
    # Where a policy waits for less than a millisecond, the rounding of a recorded time can turn one decision.
    assert (apart_s > MICROSECOND).mean() <= 0.05 and apart_s.max() <= 0.001


def test_an_open_loop_recorded_in_relative_times_is_the_trace_that_was_played() -> None:
    trace = recorded(users(), first_run("vllm_omni", None), "relative")
    was: Any = pd.DataFrame(users().columns())
    now: Any = pd.DataFrame(trace.columns())
    same = ["session", "turn", "arrival_s", "audio_s", "input_tokens", "output_tokens", "barge_in_after_s"]
    pd.testing.assert_frame_equal(now[same], was[same], check_exact=True)
    assert (now["reply_audio_s"] - was["reply_audio_s"]).abs().max() <= 0.04  # whole codec frames of 80 ms
    free = was["barge_in_after_s"].isna().shift(fill_value=False) & (was["turn"] > 0)
    pd.testing.assert_series_equal(now["think_s"][free], was["think_s"][free], check_exact=True)


def turn(session: int, index: int, **fields: Any) -> Turn:
    defaults = {"audio_s": 1.0, "reply_audio_s": 9.0, "think_s": None if index == 0 else 0.7}
    return builders.turn(session, index, **{**defaults, **fields})


def logged() -> EventLog:
    """Session 0: a turn of 12 tokens is heard for 2 s, the next is interrupted after 0.25 s of sound, the last fails.
    Session 1: a reply of 3 s is over before its user would interrupt."""
    log = EventLog().spoken_turn(0, 0, at=2.0)  # heard from 3.5 to 5.5 s
    log.add(3.6, "first_text", 0, 0, value=5).add(3.7, "text", 0, 0, value=7)
    log.start(0, 1, at=6.5).audio((8.0, 0.0), (8.25, 0.5), session=0, turn=1).barge_in(8.5, 0.25, 0, 1)
    log.start(0, 2, at=8.5).add(130.0, "turn_failed", 0, 2)
    log.start(1, 0, at=3.0).audio((5.0, 3.0), session=1).add(8.0, "barge_in_missed", 1)
    return log.done(8.0, 1, played=3.0)


PLAN = Trace.from_turns([*(turn(0, index) for index in range(3)), turn(1, 0, barge_in_after_s=7.0)])
"""Turns of 60 tokens and 9 s of reply, with 0.7 s of thinking between them."""


def test_a_recorded_turn_has_what_was_logged_and_otherwise_what_was_planned() -> None:
    rows = pd.DataFrame(recorded(PLAN, logged().events).columns()).set_index(KEYS)
    assert list(rows.index) == [(0, 0), (0, 1), (0, 2), (1, 0)]
    assert rows["arrival_s"].tolist() == [2.0, 6.5, 8.5, 3.0]
    assert rows["think_s"].fillna(-1).tolist() == [-1, 1.0, 0.7, -1]  # 6.5 - 5.5; none was taken after an interruption
    assert rows["output_tokens"].tolist() == [12, 60, 60, 60]
    assert rows["reply_audio_s"].tolist() == [2.0, 9.0, 9.0, 3.0]
    assert rows["barge_in_after_s"].fillna(-1).tolist() == [-1, 0.25, -1, 7.0]


def test_turns_that_never_began_are_counted() -> None:
    plan = Trace.from_turns([turn(0, 0), turn(0, 1), turn(1, 0)])
    trace = recorded(plan, EventLog().spoken_turn().events)
    assert trace.header.notes == ["2 of 3 turns never began: not recorded"]
    with pytest.raises(UserError, match="no turn of this run began"):
        recorded(plan, EventLog().add(0.0, "run_end", -1, -1).events)


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Path:
    experiment = Experiment(name="one", engines=["vllm_omni"], workload="voice", set={"sessions": 6, "c": 2, "p": 0.5})
    (point,) = expand(experiment)
    folder = tmp_path_factory.mktemp("run") / "points" / point.id
    folder.mkdir(parents=True)
    write_record(folder, point, measure(point), {}, environment(), datetime.now(UTC))
    return folder


def test_a_trace_of_a_record_names_the_record_and_how_it_was_played(record: Path) -> None:
    header = from_record(record).header
    assert header.generator == "recorded"
    assert (header.params["point"], header.params["arrivals"]) == (record.name, "absolute")
    notes = "\n".join(header.notes)
    for words in (record.name, "vllm_omni serving voice", "closed loop, c=2", "replies: "):
        assert words in notes


def test_a_folder_without_a_finished_record_is_refused(record: Path, tmp_path: Path) -> None:
    (point,) = expand(Experiment(name="one", engines=["vllm_omni"], workload="voice"))
    write_failure(tmp_path / "failed", point, "it broke", environment(), datetime.now(UTC))
    damaged = shutil.copytree(record, tmp_path / "damaged")
    (damaged / "events.parquet").write_bytes(b"x")
    cases = {
        record.parent.parent: "holds the points of a run",
        tmp_path / "nothing": "does not exist",
        tmp_path / "failed": "is a failed point",
        damaged: "is not a readable record",
    }
    for folder, words in cases.items():
        with pytest.raises(UserError, match=words):
            from_record(folder)


def test_a_run_of_frames_is_refused_with_the_trace_to_replay() -> None:
    trace = make_trace("metronome", {"sessions": 2, "duration_s": 10}, 0)
    with pytest.raises(UserError, match=r"replay its trace\.parquet, with workload=file"):
        recorded(trace, EventLog().events)
