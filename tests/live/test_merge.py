"""Load generators (shards) of a live run: their plan, their files, and the merge into one run."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.client.client_params import ClientParams
from harness.events.log import EventLog
from harness.live.endpoints.target import TargetParams
from harness.live.run.plan import (
    DONE,
    FAILURES,
    SENDS,
    SUFFIX,
    ArrowStream,
    Loss,
    merge,
    read_arrow_stream,
    read_plan,
    results_of,
    shard_trace,
    split_concurrency,
    write_plan,
)
from harness.request_tables.request_table import FAILED, request_table
from workloads.errors import UserError
from workloads.registry import make_trace
from workloads.trace import Session, Trace
from workloads.transforms.shard import join

SHARDS = 3
REPLY = ((1.5, "audio", 1.0), (1.5, "reply_done", np.nan), (2.5, "playback_done", 1.0), (2.5, "turn_done", np.nan))
URL = "ws://localhost:1/v1/realtime"


def planned(folder: Path, sessions: int = 12, c: int | None = None, shards: int = SHARDS) -> Trace:
    trace = make_trace("voice", {"sessions": sessions, "turns": 2}, 1)
    target = TargetParams.model_validate({"url": URL, "shards": shards})
    write_plan(folder, trace, target, ClientParams.model_validate({"c": c}))
    return trace


def play(log: EventLog, session: Session, turns: int, unfinished: bool) -> float:
    """The events of the first turns of a session; the last of them may lack its reply, and then the session its end."""
    t = session.turns[0].arrival_s or 0.0
    log.event(t, "session_start", session.id, 0)
    for turn in range(turns):
        log.event(t, "turn_start", session.id, turn)
        log.event(t + 1, "turn_end", session.id, turn, value=0.0)
        if turn == turns - 1 and unfinished:
            return t + 1
        for after_s, kind, value in REPLY:
            log.event(t + after_s, kind, session.id, turn, value=value)
        t += 3
    if not unfinished:
        log.event(t, "session_end", session.id, session.turns[-1].turn)
    return t


def leave(folder: Path, index: int, *, begun: int | None = None) -> EventLog:
    """Write the files of shard `index`. `begun`: turns of each session when it is lost; None: it plays them all."""
    out, log = results_of(folder, index), EventLog()
    out.mkdir(parents=True)
    end_s = 0.0
    for session in shard_trace(folder, index).sessions:
        turns = len(session.turns) if begun is None else min(begun, len(session.turns))
        end_s = max(end_s, play(log, session, turns, unfinished=begun is not None))
    stream = ArrowStream(out / f"events{SUFFIX}")
    half = len(log) // 2
    stream.append(log.events().slice(0, half))
    stream.append(log.events(half))
    delays = ArrowStream(out / f"sends{SUFFIX}")
    delays.append(pa.table([["audio"], [index], [float(index)], [0.001]], schema=SENDS))
    ArrowStream(out / f"failures{SUFFIX}").append(FAILURES.empty_table())
    if begun is None:
        stream.close()
        (out / DONE).write_text(json.dumps({"end_s": end_s}))
    return log


def test_merged_events_are_those_of_all_shards_in_order_of_time(tmp_path: Path) -> None:
    trace = planned(tmp_path)
    logs = [leave(tmp_path, index) for index in range(SHARDS)]
    merged = merge(tmp_path)
    events = merged.events.to_pandas()
    assert len(events) == sum(map(len, logs)) + 1 and events["kind"].iloc[-1] == "run_end"
    assert (np.diff(events["t"]) >= 0).all()
    requests = request_table(events, pd.DataFrame(trace.columns()))
    assert len(requests) == len(trace.columns()["turn"]) and set(requests["status"]) == {"completed"}
    assert not merged.lost and merged.failures.num_rows == 0
    assert merged.sends["session"].to_pylist() == [0, 1, 2]
    assert merged.run_end_s == events["t"].max()


@pytest.mark.parametrize(("begun", "lost_s"), [(0, 0.0), (1, 500.0), (2, 0.0), (3, 0.0)])
def test_a_lost_shard_fails_one_turn_of_each_of_its_sessions_and_no_other(
    tmp_path: Path, begun: int, lost_s: float
) -> None:
    """Shard 1 of 3 is lost when each of its sessions has begun this many turns, the last of them without a reply."""
    trace = planned(tmp_path)
    logs = [leave(tmp_path, index, begun=begun if index == 1 else None) for index in range(SHARDS)]
    merged = merge(tmp_path, {1: Loss(lost_s, "was killed by SIGKILL")})
    requests = request_table(merged.events.to_pandas(), pd.DataFrame(trace.columns()))
    turns = {session.id: len(session.turns) for session in shard_trace(tmp_path, 1).sessions}
    of_victim = requests["session"].isin(turns)
    others = sum(len(session.turns) for session in trace.sessions if session.id not in turns)
    assert requests.loc[~of_victim, "status"].tolist() == ["completed"] * others
    failed = requests.loc[requests["status"] == FAILED, ["session", "turn"]].to_numpy().tolist()
    assert failed == [[session, max(0, min(begun, count) - 1)] for session, count in turns.items()]
    assert not set(requests["status"]) - {"completed", FAILED}  # no turn is open
    reasons = merged.failures.to_pandas()
    assert set(reasons["reason"]) == {"lost: shard 1 was killed by SIGKILL"}
    assert sorted(reasons["session"]) == sorted(merged.lost_sessions) == sorted(turns)
    assert (reasons["t_s"] >= logs[1].events()["t"].to_numpy().max(initial=0.0)).all()
    assert merged.shards[1]["lost"] == "was killed by SIGKILL"


def test_a_truncated_arrow_stream_keeps_its_whole_pieces_also_with_new_event_kinds(tmp_path: Path) -> None:
    kinds = [kind for kind in ("text", "audio", "barge_in", "audio", "reply_done") for _ in range(10)]
    log, path = EventLog(), tmp_path / "events.arrows"
    stream = ArrowStream(path)
    stream.append(log.events())
    for t, kind in enumerate(kinds):
        log.event(t, kind, 0, 0, value=1.0)
        if t % 10 == 9:
            stream.append(log.events(t - 9))
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 60)  # within the last piece
    table = read_arrow_stream(path)
    assert table is not None and table["t"].to_pylist() == [float(t) for t in range(40)]
    assert table["kind"].to_pylist() == kinds[:40]
    path.write_bytes(b"")
    assert read_arrow_stream(path) is None and read_arrow_stream(tmp_path / "never written") is None


@given(c=st.integers(1, 1000), shards=st.integers(1, 64))
def test_concurrency_is_split_evenly_over_shards(c: int, shards: int) -> None:
    shares = [share for share in split_concurrency(c, shards) if share is not None]
    assert sum(shares) == c and len(shares) == shards and max(shares) - min(shares) <= 1


@pytest.mark.parametrize(("c", "shards", "expected"), [(None, 4, 4), (2, 4, 2), (7, 3, 3)])
def test_a_plan_has_no_more_shards_than_concurrent_sessions_and_loses_none(
    tmp_path: Path, c: int | None, shards: int, expected: int
) -> None:
    trace = planned(tmp_path, c=c, shards=shards)
    plan = read_plan(tmp_path)
    assert plan.shards == expected
    assert sum(client.c or 0 for client in plan.clients) == (c or 0)
    assert join([shard_trace(tmp_path, i) for i in range(expected)]).header.hash == trace.header.hash


def test_a_folder_without_a_plan_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no readable plan\.json"):
        read_plan(tmp_path)
