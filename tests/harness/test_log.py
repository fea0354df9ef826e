"""The event log of a long run, which is written to disk while it grows."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.events import log as log_module
from harness.events import point_progress
from harness.events.log import EVENT_FIELDS, STEP_FIELDS, EventLog
from harness.experiments.experiment import Experiment
from harness.records.record import write_tables
from harness.replays.expand import expand
from harness.replays.worker.measure import measure
from harness.request_tables.request_table import request_table
from tests.engines.replays import replay
from workloads.columns.classes import CLASS_COLUMNS
from workloads.registry import make_trace

SMALL = 100
"""Rows of a row group here."""


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_module, "ROW_GROUP", SMALL)


def fill(log: EventLog, events: int) -> EventLog:
    for i in range(events):
        log.event(i / 8, ("arrive", "token", "finish")[i % 3], i // 3, i % 2, ("", "thinker")[i % 2], i)
        log.step(i / 8, 0.1, ("thinker", "talker")[i // 50 % 2], *range(i, i + len(STEP_FIELDS) - 3))
    log.close()
    return log


@pytest.mark.parametrize("events", [0, SMALL - 1, SMALL, 3 * SMALL + 7])
def test_a_log_on_disk_is_the_log_in_memory(events: int, tmp_path: Path, small: None) -> None:
    spilled, kept = fill(EventLog(tmp_path), events), fill(EventLog(), events)
    assert len(spilled) == len(kept) == events
    assert list(EVENT_FIELDS) == spilled.events().column_names
    for name in ("events", "steps"):
        there, here = (getattr(log, name)().to_pandas() for log in (spilled, kept))
        pd.testing.assert_frame_equal(there.astype({"stage": str}), here.astype({"stage": str}))
        assert spilled.files().get(name) == (tmp_path / f"{name}.parquet" if events >= SMALL else None)
    assert kept.files() == {}
    groups, rest = divmod(events, SMALL)
    in_memory = [rest] if rest or not groups else []
    if groups:
        assert [piece.num_rows for piece in spilled.event_pieces()] == groups * [SMALL] + in_memory


def test_no_more_than_a_row_group_stays_in_memory(tmp_path: Path, small: None) -> None:
    log, path, sizes = EventLog(tmp_path), tmp_path / "events.parquet", set()
    for i in range(5 * SMALL + 1):
        log.event(i, "token", i, 0, "thinker", 1)
        sizes.add(path.stat().st_size if path.exists() else 0)
    assert len(sizes) >= 5, "each row group is written when it is full"
    log.close()
    groups = pq.ParquetFile(path).metadata
    assert [groups.row_group(i).num_rows for i in range(groups.num_row_groups)] == 5 * [SMALL] + [1]


def test_a_long_run_measures_what_a_short_one_would(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings: dict[str, Any] = {"sessions": 3, "p": 0.5}
    (point,) = expand(Experiment(name="one", engines=["liveserve"], workload="voice", set=settings))
    whole = measure(point)
    assert not isinstance(whole.events, Path)
    monkeypatch.setattr(log_module, "ROW_GROUP", SMALL)
    written = []
    for folder in (tmp_path / "a", tmp_path / "b"):
        folder.mkdir()
        long = measure(point, folder)
        write_tables(folder, point, long)
        assert long.events == folder / "events.parquet" and long.metrics == whole.metrics
        pd.testing.assert_frame_equal(long.requests, whole.requests)
        events = pd.read_parquet(folder / "events.parquet").astype({"kind": str, "stage": str})
        pd.testing.assert_frame_equal(events, whole.events.to_pandas().astype({"kind": str, "stage": str}))
        written.append({path.name: path.read_bytes() for path in folder.iterdir()})
    assert written[0] == written[1] and {*written[0]} >= {"events.parquet", "steps.parquet", "requests.parquet"}


@pytest.fixture(scope="module")
def served() -> tuple[pd.DataFrame, pd.DataFrame]:
    """Events of a run with interruptions, and its trace with two classes."""
    trace = make_trace("voice", {"sessions": 8, "turns": 3, "p": 0.6}, 3)
    events = replay("liveserve", {}, {}, {}, trace, seed=7).events.to_pandas()
    turns = pd.DataFrame(trace.columns())
    turns["request_class"] = np.where(turns["session"] % 2 == 0, "even", "odd")
    assert {"barge_in", "abort"} <= set(events["kind"]) and set(CLASS_COLUMNS) <= set(turns)
    return events, turns


@settings(max_examples=25)
@given(data=st.data())
def test_requests_are_the_same_from_any_pieces_of_a_log(data, served) -> None:
    events, turns = served
    cuts = sorted(data.draw(st.lists(st.integers(0, len(events)), max_size=12)))
    bounds = zip([0, *cuts], [*cuts, len(events)], strict=True)
    pieces = (events.iloc[start:end] for start, end in bounds)
    pd.testing.assert_frame_equal(request_table(pieces, turns), request_table(events, turns), check_exact=True)


@pytest.mark.parametrize(
    ("engine", "workload", "settings"),
    [("vllm_omni", "voice", {"sessions": 3, "p": 0.5}), ("metronome", "metronome", {"sessions": 2, "duration_s": 10})],
)
def test_at_its_end_all_planned_turns_are_over(engine: str, workload: str, settings: dict) -> None:
    share: Any = SimpleNamespace(value=0.0)
    point_progress.tell(share)
    replay(engine, {}, {}, {}, make_trace(workload, settings, 0), 0)
    assert share.value == pytest.approx(1)
