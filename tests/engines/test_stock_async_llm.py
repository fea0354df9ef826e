"""Stock `AsyncLLM` whole, under our schedulers: on the modelled executor, on its platform, and on vLLM's own worker."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from engines.stock.plugin import SWITCH
from tests.engines.stock_engine import HELD_AT

pytestmark = pytest.mark.slow("starts vLLM's AsyncLLM")

ROOT = Path(__file__).parents[2]


def engine(scenario: str, **environment: str) -> dict[str, Any]:
    """What `tests/engines/stock_engine.py` saw."""
    quiet = {"OMP_NUM_THREADS": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_LOGGING_LEVEL": "ERROR"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.engines.stock_engine", scenario],
        cwd=ROOT,
        env={**os.environ, **quiet, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_async_llm_on_the_modelled_executor_takes_live_signals():
    seen = engine("modelled")
    assert seen["near"] == {"tokens": 200, "finish": "length"}
    assert seen["held_at"] == seen["still_held"] == HELD_AT
    assert seen["rested"]["rounds"] <= 10 * seen["rested"]["s"] + 5  # it looks every 0.1 s, not every 1 ms
    assert seen["far"] == {"tokens": 120, "finish": "length"}  # it went on when its lead was heard
    assert seen["loud"]["finish"] == "abort"
    assert seen["ended"] == [{"request": "r-loud", "tokens": seen["loud"]["tokens"]}]
    assert seen["again"] == {"tokens": 20, "finish": "length"}
    assert "audio_sent needs 'seconds'" in seen["refused"]
    assert (seen["state"]["requests"], seen["state"]["sessions"]) == (0, 0)
    assert seen["state"]["counters"]["u2_deferred"] > 0


def test_async_llm_with_asynchronous_scheduling_on_the_modelled_platform():
    seen = engine("asynchronous", **{SWITCH: "1"})
    assert seen["asynchronous"]
    assert seen["callers"][:7] == [{"tokens": 60 + 20 * i, "finish": "length"} for i in range(7)]
    assert seen["callers"][7]["finish"] == "abort"
    assert seen["callers"][7]["tokens"] in (HELD_AT, HELD_AT + 1)  # one more if one was in flight
    assert [ended["request"] for ended in seen["ended"]] == ["r-s7"]
    assert seen["state"]["free_blocks"] == seen["state"]["blocks"] == 59


def test_async_llm_on_the_real_worker_gives_stock_vllm_s_tokens():
    seen = engine("worker")
    assert seen["ids"] == seen["stock_ids"]
    assert len({token for ids in seen["ids"] for token in ids}) > 50
    assert seen["held_at"] == HELD_AT
    assert seen["gone"]["finish"] == "abort"
    assert seen["ended"] == [{"request": "r-gone", "tokens": seen["gone"]["tokens"]}]
    assert seen["state"]["free_blocks"] == seen["state"]["blocks"]
