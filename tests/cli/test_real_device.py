"""The whole way on a real device: an experiment on the processor, again in virtual time, and both in one table."""

import json
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from harness.records.record import load_record

pytestmark = pytest.mark.slow("runs a model on the CPU")

YAML = """
name: small
title: Two calls, really executed
engines: [vllm_omni, liveserve]
workload: voice
set: {deployment: speech_tiny, sessions: 2, turns: 1, reply_tokens: 12, p: 1, utterance_s: 0.5, abort_at: layer,
  turn_send_delay_limit_s: 5}
"""


def test_the_same_experiment_on_the_processor_and_in_virtual_time(rehearse: Callable) -> None:
    Path("small.yaml").write_text(YAML)
    status, out, _ = rehearse("run", "small.yaml", "--device", "cpu")
    assert status == 0, out
    rows = json.loads(Path("results/small-cpu/summary.json").read_text())
    assert [row["device"] for row in rows] == ["cpu", "cpu"]
    records = [load_record(Path("results/small-cpu/points") / row["point"]) for row in rows]
    proofs = [record.manifest["proof"] for record in records]
    assert len({proof["pid"] for proof in proofs}) == 2
    assert not any(psutil.pid_exists(proof["pid"]) for proof in proofs)
    nothing = ("requests_before", "kv_blocks_used_before", "requests_after", "kv_blocks_used_after")
    assert [proof[name] for proof in proofs for name in nothing] == [0] * 8
    assert all(record.manifest["cost"]["warm_up_steps"] > 0 for record in records)
    assert all(row["metrics"]["audio_ttfp_p50"]["value"] > 0 for row in rows)
    assert "really executed" in Path("results/small-cpu/report.html").read_text()

    status, out, _ = rehearse("run", "results/small-cpu", "--device", "virtual")
    assert status == 0, out
    virtual = json.loads(Path("results/small-cpu-virtual/summary.json").read_text())
    assert [row["device"] for row in virtual] == ["virtual", "virtual"]
    traces = [
        load_record(Path(f"results/{run}/points") / rows[0]["point"]).manifest["point"]["trace_hash"]
        for run, rows in (("small-cpu", rows), ("small-cpu-virtual", virtual))
    ]
    assert traces[0] == traces[1]

    status, out, _ = rehearse("compare", "results/small-cpu", "results/small-cpu-virtual")
    assert status == 0
    assert "cpu" in out and "virtual" in out and "liveserve" in out
