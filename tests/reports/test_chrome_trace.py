import gzip
import json
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.experiments.experiment import Experiment
from harness.records.record import Record
from reports.replays.chrome_trace import Processes, RequestSlices, StepSlices, events
from tests.conftest import Rehearse
from tests.reports.raw import served

Event = dict[str, Any]

KINDS: dict[str, dict[str, Any]] = {
    "turns": {"engines": ["liveserve"], "workload": "voice", "set": {"sessions": 5, "p": 0.5, "c": 3}},
    "text": {
        "engines": ["vllm_omni_wo"],
        "workload": "gui_episodes",
        "set": {"episodes": 6, "deployment": "llama_8b_1gpu", "c": 3, "rate": 10},
    },
    "shares": {"engines": ["nova"], "workload": "gui", "set": {"requests": 8, "deployment": "cogagent_a6000"}},
    "calls": {"engines": ["metronome"], "workload": "metronome", "set": {"sessions": 3, "duration_s": 12}},
}


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Record]:
    """A measured point of each kind of system."""
    return {
        name: served(tmp_path_factory.mktemp(name), Experiment(name=name, title=name, seeds=[0], **fields)).record
        for name, fields in KINDS.items()
    }


def checked(found: list[Event]) -> dict[str, list[Event]]:
    """The events by phase, of a file that keeps the rules of the format."""
    by_phase = defaultdict[str, list[Event]](list)
    for event in found:
        by_phase[event["ph"]].append(event)
    assert by_phase.keys() <= set("MXCben")
    named = [(e["pid"], e["tid"], e["name"]) for e in by_phase["M"]]
    assert len(named) == len(set(named))
    assert all(e["ts"] >= 0 and (e["pid"], 0, "process_name") in named for e in found if e["ph"] != "M")
    free_us = defaultdict[tuple, float](float)
    for e in by_phase["X"]:  # slices of a thread may not cross
        thread, at_us = (e["pid"], e["tid"]), round(e["ts"], 3)
        assert (*thread, "thread_name") in named and e["pid"] != e["tid"]
        assert at_us >= free_us[thread] and e["dur"] >= 0
        free_us[thread] = round(at_us + e["dur"], 3)
    counted_us = defaultdict[tuple, float](float)
    for e in by_phase["C"]:
        assert round(e["ts"], 3) >= counted_us[e["pid"], e["name"]]
        assert all(isinstance(value, int) for value in e["args"].values())
        counted_us[e["pid"], e["name"]] = round(e["ts"], 3)
    nested(found)
    return by_phase


def nested(found: list[Event]) -> None:
    """The asynchronous slices of a track lie within one another, and each of them ends."""
    tracks = defaultdict[tuple, list[Event]](list)
    for e in found:
        if e["ph"] in "be":
            track, at_us = tracks[e["pid"], e["cat"], e["id2"]["local"]], round(e["ts"], 3)
            assert not track or at_us >= track[-1]["ts"]
            if e["ph"] == "b":
                track.append(e)
            else:
                assert track.pop()["name"] == e["name"]
    assert not any(tracks.values())


def lengths_us(by_phase: dict[str, list[Event]], name: str, category: str) -> dict[str, float]:
    """How long the asynchronous slices of a name last, by id."""
    ends = {(e["id2"]["local"], e["name"]): e["ts"] for e in by_phase["e"] if e["cat"] == category}
    begins = [e for e in by_phase["b"] if e["cat"] == category and e["name"] == name]
    return {e["id2"]["local"]: ends[e["id2"]["local"], name] - e["ts"] for e in begins}


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_keeps_the_rules_and_has_every_step(records: dict[str, Record], kind: str):
    record = records[kind]
    by_phase, steps = checked(list(events(record))), record.table("steps")
    ran = steps[steps["requests"] > 0]
    assert len(by_phase["X"]) == len(ran)
    assert sum(e["dur"] for e in by_phase["X"]) == pytest.approx(1e6 * ran["dt_s"].sum(), rel=1e-6)
    assert sum(e["args"]["tokens"] for e in by_phase["X"]) == ran["tokens"].sum()
    sessions = [e for e in by_phase["b"] if e["name"] == "session"]
    assert len(sessions) == record.table("requests")["session"].nunique()


@pytest.mark.parametrize("kind", ["turns", "text"])
def test_a_request_has_its_phases(records: dict[str, Record], kind: str):
    by_phase = checked(list(events(records[kind])))
    requests: Any = records[kind].table("requests")
    ids = [f"{{}}.{session}.{turn}" for session, turn in requests[["session", "turn"]].to_numpy()]
    turn_us, queued_us = lengths_us(by_phase, "turn", "turn"), lengths_us(by_phase, "queued", "thinker")
    wait_us, spoken_us = lengths_us(by_phase, "wait", "turn"), lengths_us(by_phase, "speak", "turn")
    assert sorted(turn_us) == sorted(id.format("turn") for id in ids)
    for id, row in zip(ids, requests.itertuples(), strict=True):
        assert queued_us.get(id.format("thinker"), 0.0) == pytest.approx(1e6 * row.queueing_entry_s, abs=0.01)
        assert wait_us[id.format("turn")] == pytest.approx(1e6 * row.ttft_s, abs=0.01)
        said_us = 1e6 * (row.turn_end_s - row.turn_start_s)
        assert spoken_us.get(id.format("turn"), 0.0) == pytest.approx(said_us, abs=0.01)
    cut = int((requests["status"] == "barged_in").sum())
    assert Counter(e["name"] for e in by_phase["n"])["barge_in"] == cut
    assert len(lengths_us(by_phase, "playback", "playback")) == (len(ids) if kind == "turns" else 0)


def row(t: float, kind: str, turn: int = 0, stage: str = "", session: int = 0) -> dict[str, Any]:
    return {"t": t, "kind": kind, "session": session, "turn": turn, "stage": stage, "value": 0.0}


def requests_of(*rows: dict[str, Any]) -> dict[str, list[Event]]:
    return checked(list(RequestSlices(Processes(None)).events(iter(rows))))


@given(
    st.lists(st.tuples(st.integers(0, 1), st.floats(0, 2), st.floats(0, 3, width=16), st.integers(0, 3)), max_size=30)
)
def test_steps_that_overlap_get_threads_of_their_own(rows: list[tuple[int, float, float, int]]):
    """`rows`: the replica of each step, the time since the step before (s), its length (s) and its requests."""
    t, steps = 0.0, []
    zero = dict.fromkeys(("prefill_tokens", "running", "waiting", "held", "kv_used", "kv_blocks", "preempted"), 0)
    for replica, later_s, dt_s, requests in rows:
        t += later_s
        step = {"t_s": t, "dt_s": dt_s, "stage": "decode", "replica": replica, "requests": requests}
        steps.append({**zero, **step, "tokens": requests, "sms": np.nan})
    by_phase = checked([e for e in StepSlices(Processes(None)).events(iter(steps)) if e["ph"] in "XM"])
    assert len(by_phase["X"]) == sum(requests > 0 for *_, requests in rows)
    assert not any("sms" in e["args"] for e in by_phase["X"])  # unknown


def test_a_slice_that_is_open_at_the_end_of_the_run_ends_there():
    by_phase = requests_of(
        row(0.0, "session_start"),
        row(1.0, "turn_start"),
        row(2.0, "turn_end"),
        row(2.5, "arrive", stage="vision"),
        row(9.0, "run_end", -1, session=-1),
    )
    assert {e["name"] for e in by_phase["b"]} == {"session", "turn", "speak", "wait", "request", "queued"}
    assert {e["ts"] for e in by_phase["e"] if e["name"] != "speak"} == {9e6}


def test_the_command_writes_the_events_compressed_or_where_it_is_told(records: dict[str, Record], rehearse: Rehearse):
    record = records["text"]
    name = f"{record.point.id}.perfetto.json.gz"
    status, out, _ = rehearse("trace", "perfetto", str(record.folder))
    assert status == 0 and f"{name}: " in out
    first = Path(name).read_bytes()
    document = json.loads(gzip.decompress(first))
    assert document["displayTimeUnit"] == "ms"
    assert document["traceEvents"] == list(events(record))
    assert rehearse("trace", "perfetto", str(record.folder), "--out", "t.json")[0] == 0
    assert json.loads(Path("t.json").read_text()) == document
    assert rehearse("trace", "perfetto", str(record.folder))[0] == 0
    assert Path(name).read_bytes() == first
