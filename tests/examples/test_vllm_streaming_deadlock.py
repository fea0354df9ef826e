"""The script that shows stock vLLM's deadlock to its authors; once a release fixes it, `recovery` can go."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow("starts vLLM's AsyncLLM")

SCRIPT = Path(__file__).parents[2] / "examples" / "vllm_streaming_deadlock.py"


def test_stock_vllm_hangs_once_waiting_sessions_have_the_pool():
    run = subprocess.run([sys.executable, SCRIPT], capture_output=True, text=True, check=False)
    assert run.returncode == 1, run.stderr
    said = re.findall(r"(\d+) tokens in 100 steps; pool (\d+)% full; (\d+) of 8 sessions wait", run.stdout)
    turns = [tuple(map(int, turn)) for turn in said]
    assert turns[0] == (8 * (48 + 3), 16, 0), "the last token of an answer is never computed"
    assert turns[-1] == (0, 100, 8)
    assert len(SCRIPT.read_text().splitlines()) < 60, "short enough to attach to an issue"
