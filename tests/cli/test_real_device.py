"""The whole way on a real device: an experiment on the processor, again in virtual time, and both in one table."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from harness.records.record import Record, load_record

pytestmark = pytest.mark.slow("runs a model on the CPU")

YAML = """
name: small
title: Two calls, really executed
engines: [vllm_omni, liveserve]
workload: voice
set: {deployment: speech_tiny, sessions: 2, turns: 1, reply_tokens: 12, p: 1, utterance_s: 0.5, abort_at: layer,
  turn_send_delay_limit_s: 5}
"""
CPU, VIRTUAL = "results/small-cpu", "results/small-cpu-virtual"


def run(rehearse: Callable, what: str, device: str, out: str) -> tuple[list[dict[str, Any]], list[Record]]:
    """The rows of the summary, and the record of each, of an experiment that was run into `out`."""
    status, said, _ = rehearse("run", what, "--device", device)
    assert status == 0, said
    rows = json.loads(Path(out, "summary.json").read_text())
    return rows, [load_record(Path(out, "points", row["point"])) for row in rows]


def assert_clean(records: list[Record]) -> None:
    """Each point was executed, in a process of its own that has ended, on an engine that was empty before and after."""
    assert all(record.manifest["cost"]["warm_up_steps"] > 0 for record in records)
    proofs = [record.manifest["proof"] for record in records]
    assert len({proof["pid"] for proof in proofs}) == len(records)
    assert not any(psutil.pid_exists(proof["pid"]) for proof in proofs)
    nothing = ("requests_before", "kv_blocks_used_before", "requests_after", "kv_blocks_used_after")
    assert {proof[name] for proof in proofs for name in nothing} == {0}


def test_an_experiment_is_executed_on_the_processor_and_repeated_in_virtual_time(rehearse: Callable) -> None:
    """One test, as executing takes most of a minute."""
    Path("small.yaml").write_text(YAML)
    rows, real = run(rehearse, "small.yaml", "cpu", CPU)
    assert [row["device"] for row in rows] == ["cpu", "cpu"]
    assert all(row["metrics"]["audio_ttfp_p50"]["value"] > 0 for row in rows)
    assert_clean(real)
    assert "really executed" in Path(CPU, "report.html").read_text()

    rows, modelled = run(rehearse, CPU, "virtual", VIRTUAL)
    assert [row["device"] for row in rows] == ["virtual", "virtual"]
    hashes = [[record.manifest["point"]["trace_hash"] for record in records] for records in (real, modelled)]
    assert hashes[0] == hashes[1]

    status, out, _ = rehearse("compare", CPU, VIRTUAL)
    assert status == 0
    assert "cpu" in out and "virtual" in out and "liveserve" in out
