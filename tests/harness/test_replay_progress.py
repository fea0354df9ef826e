"""A replay says how many of its planned turns are over, in real workers on vLLM's scheduler."""

from types import SimpleNamespace

import pytest

from harness.events import point_progress
from tests.engines.replays import replay
from workloads.registry import make_trace


@pytest.mark.parametrize(
    ("engine", "workload", "settings"),
    [
        ("vllm_omni", "voice", {"sessions": 3, "p": 0.5}),
        ("metronome", "metronome", {"sessions": 2, "duration_s": 10}),
    ],
)
def test_at_its_end_all_planned_turns_are_over(engine: str, workload: str, settings: dict) -> None:
    share = SimpleNamespace(value=0.0)
    point_progress.tell(share)
    replay(engine, {}, {}, {}, make_trace(workload, settings, 0), 0)
    assert share.value == pytest.approx(1)
