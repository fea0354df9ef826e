"""The floor: errors of the client's clock against the null server, from made-up events and from real runs."""

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from harness.events.log import EventLog
from harness.live.run.floor import PACKETS, Exchange, answered, floor_of, measure_floor
from harness.live.run.plan import FAILURES, SENDS, Merged
from tests.selftest import quality

LATE_S = 0.0015


def exchange(answers: int, kept: int | None = None) -> Exchange:
    """A server that takes 20 ms and then 10 ms a packet, seen by a client that is late by `LATE_S` each way."""
    log, truth = EventLog(), []
    for session in range(answers):
        end_s, packets = 1.0 + 0.1 * session, 5 if session else 1
        log.event(end_s, "turn_end", session, 0, value=LATE_S)
        read_s = end_s + LATE_S
        for k in range(packets):
            log.event(read_s + 0.02 + 0.01 * k + LATE_S, "text" if k else "first_text", session, 0, value=1)
        read_s += 500.0  # of another clock
        truth.append((read_s, read_s + 0.02, read_s + 0.02 + 0.01 * (packets - 1), packets))
    columns = zip(*truth[:kept], strict=True)
    names = ("read_s", "first_s", "last_s", "packets")
    sends = {"kind": ["request"] * answers, "session": range(answers), "due_s": [1.0] * answers}
    delays = pa.table({**sends, "send_delay_s": np.full(answers, LATE_S)}, schema=SENDS)
    merged = Merged(log.events(), delays, FAILURES.empty_table(), 3.0, [{"cpu_s": 0.5, "wall_s": 2.0}] * 2)
    server = {"cpu_s": 0.2, "late_p99_s": 0.0}
    return Exchange(merged, pa.table(dict(zip(names, map(list, columns), strict=True))), server)


def test_the_floor_reports_the_bias_and_the_delay_of_a_client_that_is_late():
    floor = floor_of("text", 10, 2, exchange(10))
    assert (floor.answers, floor.sends, floor.failed) == (10, 10, 0)
    for value in (floor.bias_p50_s, floor.bias_p99_s):
        assert value == pytest.approx(2 * LATE_S)
    assert floor.reported_p50_s == pytest.approx(0.02 + 2 * LATE_S)
    assert floor.true_p50_s == pytest.approx(0.02)
    assert floor.send_delay_p99_s == floor.send_delay_max_s == LATE_S
    assert floor.itl_true_p50_s == pytest.approx(0.01) and floor.itl_bias_p99_s == pytest.approx(0, abs=1e-9)
    assert (floor.sends_per_s, floor.cpu_share, floor.cpu_s_per_answer) == (10.0, 0.5, 0.1)
    assert floor.server_cpu_share == pytest.approx(0.1)


def test_answers_that_cannot_be_paired_have_no_bias():
    floor = floor_of("text", 10, 1, exchange(10, kept=9))
    assert floor.bias_p50_s is None and floor.bias_p99_s is None and floor.true_p50_s is not None


def test_a_floor_without_answers_has_no_values():
    empty = exchange(1)
    merged = Merged(EventLog().events(), SENDS.empty_table(), FAILURES.empty_table(), 0.0, [{}])
    floor = asdict(floor_of("text", 1, 1, Exchange(merged, empty.truth.slice(0, 0), empty.server)))
    assert (floor["answers"], floor["sends"], floor["failed"]) == (0, 0, 0)
    known = {name for name, value in floor.items() if pd.notna(value)}
    assert known == {"kind", "sessions", "shards", "answers", "sends", "failed", "server_late_p99_s"}


def test_answers_are_in_order_of_their_first_packet_with_sound():
    log = EventLog()
    for session, first_s in ((0, 3.0), (1, 2.0)):
        log.event(1.0, "turn_end", session, 0)
        log.event(first_s - 0.5, "audio", session, 0, value=0.0)
        log.event(first_s, "audio", session, 0, value=0.1)
    log.event(4.0, "turn_end", 2, 0)  # never answered
    rows = answered(log.events().to_pandas(), PACKETS["voice"])
    assert rows["first_s"].tolist() == [1.0, 2.0]
    assert all(rows["gap_s"].isna())


@pytest.mark.slow("calls in real time")
@pytest.mark.parametrize(("kind", "shards"), [("voice", 2), ("telephone", 1), ("text", 1), ("frames", 1)])
def test_the_real_clients_and_the_null_server_agree_on_every_answer(kind: str, shards: int):
    floor = measure_floor(kind, 4, shards, 1.0, {} if kind == "telephone" else {"chunk_ms": 40})
    assert (floor.kind, floor.sessions, floor.shards, floor.failed) == (kind, 4, shards, 0)
    assert floor.answers >= 4 and floor.sends >= floor.answers
    assert floor.true_p50_s is not None and floor.true_p50_s >= (0.02 if kind == "text" else 0.2)
    assert floor.bias_p50_s is not None and 0 < floor.bias_p50_s < 0.5  # paired; a stalled machine only adds
    assert floor.send_delay_p50_s is not None and floor.send_delay_p50_s > 0
    assert floor.cpu_share > 0 and floor.server_late_p99_s is not None


@pytest.mark.slow("calls in real time")
def test_the_whole_quality_run(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(quality, "SHARDS", (1, 2))
    out = tmp_path / "quality.json"
    assert quality.main(["--quick", "--sessions", "2", "--seconds", "3", "--json", str(out)]) == 0
    assert "rehearse live" in capsys.readouterr().out
    report = json.loads(out.read_text())
    [calls] = report["calls"]  # which hear while they speak
    assert calls["sessions"] == 2 and calls["heard"] > 0 and calls["bias_p50_s"] is not None
    assert [row["shards"] for row in report["text"]] == [1, 2]
    for row in report["text"]:
        assert row["answers"] == 300 and row["failed"] == 0
        assert 80 < row["planned"] < 125  # a Poisson process of 100/s for 3 s
        assert row["rate"] == pytest.approx(row["planned"], rel=0.5)  # a machine may stall for one of 3 s
        assert 0.0199 < row["true_p50_s"] <= row["reported_p50_s"]
