"""An experiment is executed on the processor, repeated in virtual time, and compared."""

import json
from collections.abc import Callable
from pathlib import Path

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


def records(rehearse: Callable, what: str, device: str, out: str) -> list[Record]:
    """Run an experiment and return the record of each engine."""
    status, said, _ = rehearse("run", what, "--device", device)
    assert status == 0, said
    rows = json.loads(Path(out, "summary.json").read_text())
    assert [row["device"] for row in rows] == [device] * 2
    return [load_record(Path(out, "points", row["point"])) for row in rows]


def assert_clean(real: list[Record]) -> None:
    """Each point was executed, in a process of its own that has ended, on an engine that was empty before and after."""
    assert all(record.manifest["cost"]["warm_up_steps"] > 0 for record in real)
    proofs = [record.manifest["proof"] for record in real]
    assert len({proof["pid"] for proof in proofs}) == len(real)
    assert not any(psutil.pid_exists(proof["pid"]) for proof in proofs)
    nothing = ("requests_before", "kv_blocks_used_before", "requests_after", "kv_blocks_used_after")
    assert {proof[name] for proof in proofs for name in nothing} == {0}


def test_an_experiment_is_executed_on_the_processor_and_repeated_in_virtual_time(rehearse: Callable) -> None:
    Path("small.yaml").write_text(YAML)
    real = records(rehearse, "small.yaml", "cpu", CPU)
    assert_clean(real)
    assert all(record.metrics["audio_ttfp_p50"]["value"] > 0 for record in real)
    modelled = records(rehearse, CPU, "virtual", VIRTUAL)
    hashes = [[record.manifest["point"]["trace_hash"] for record in each] for each in (real, modelled)]
    assert hashes[0] == hashes[1]  # the same users
    status, out, _ = rehearse("compare", CPU, VIRTUAL)
    assert status == 0 and "cpu" in out and "virtual" in out and "liveserve" in out
