"""Device sockets: the users and the engine of virtual time, in processes over real sockets."""

from pathlib import Path
from typing import Any

import pytest

from harness.by_device import expand, measure
from harness.experiments.experiment import Experiment
from harness.records.record import Record, load_record
from harness.replays.executors.local import LocalExecutor

pytestmark = pytest.mark.slow("calls in real time")

TURNS = {"workload": "voice", "set": {"sessions": 3, "rate": 10, "reply_tokens": 10, "max_reply_tokens": 20, "c": 2}}
FRAMES = {"workload": "metronome", "set": {"sessions": 2, "duration_s": 6, "frame_s": 1, "network_ms": 0}}


def point(device: str, engine: str, settings: dict) -> Any:
    data = {"name": "parity", "engines": [engine], "device": device, **settings}
    (planned,) = expand(Experiment.model_validate(data))
    return planned


def measured(folder: Path, points: list[Any]) -> list[Record]:
    """A machine that is busy may be late, which the record says; it keeps everything all the same."""
    outcomes = LocalExecutor(folder, measure, jobs=1, timeout_s=300).run(points)
    records = []
    for outcome in outcomes:
        late = outcome.reason.startswith("INVALID: ") and "send_delay_limit_ms" in outcome.reason
        assert late or not outcome.reason, outcome.reason
        records.append(load_record(outcome.folder))
    return records


def test_users_get_the_same_replies_over_sockets_and_in_virtual_time(tmp_path: Path) -> None:
    points = [point(device, "liveserve", TURNS) for device in ("virtual", "sockets")]
    assert points[0].trace_hash == points[1].trace_hash and points[0].id != points[1].id
    virtual, sockets = measured(tmp_path, points)
    here, there = virtual.table("requests"), sockets.table("requests")
    for column in ("session", "turn", "status", "spoken", "generated_entry", "generated_talker", "packets"):
        assert here[column].tolist() == there[column].tolist(), column
    assert there["audio_s"].tolist() == pytest.approx(here["audio_s"].tolist(), abs=1e-6, nan_ok=True)
    assert all(there["audio_ttfp_s"].notna())
    assert sockets.metrics["wasted_token_ratio"]["value"] == 0 and sockets.metrics["failed"]["value"] == 0
    assert sockets.metrics["send_delay_p99"]["value"] is not None
    assert sockets.metrics["server_lag_p99"]["value"] is not None
    assert "steady" in set(here["phase"]) & set(there["phase"])
    assert "rehearsal_sessions_open" in set(sockets.table("scrape")["name"])
    assert [shard["dialect"] for shard in sockets.manifest["proof"]["shards"]] == ["rehearsal"]


def test_frames_are_answered_over_sockets(tmp_path: Path) -> None:
    (record,) = measured(tmp_path, [point("sockets", "metronome", FRAMES)])
    frames = record.table("requests")
    assert len(frames) == record.trace().columns()["turn"].size
    assert record.metrics["admitted"]["value"] == 2 and record.metrics["shed"]["value"] == 0
    answered = frames[frames["status"].isin(["delivered", "empty"])]
    assert set(answered["session"]) == {0, 1} and len(answered) >= len(frames) - 2
    assert min(answered["latency_s"]) > 0
    assert set(frames["status"]) <= {"delivered", "empty", "unanswered"}
