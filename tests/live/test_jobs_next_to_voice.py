"""A live run of voice users and agent jobs at a voice server and a text server."""

from pathlib import Path

import pytest

from harness.live.expand import expand
from harness.live.live_experiment import live_experiment
from harness.live.null_server.null_server import NullServer
from harness.live.run.measure_live import measure_live
from tests.workloads import agent_files
from tests.workloads.agent_files import STEPS
from workloads.formats import save_trace
from workloads.registry import make_trace
from workloads.transforms.transform import classify, loop, merge

pytestmark = [pytest.mark.slow("calls in real time"), pytest.mark.usefixtures("no_floor")]

GAP_S, GAPS = 0.2, 4
"""Gaps are cut to `GAP_S`. A job has four of them on its path, and replies of 240 tokens of 10 ms each: 2.4 s."""


@pytest.fixture
def both(tmp_path: Path) -> Path:
    """The trace of two spoken sessions of one turn each, and of two jobs."""
    path = agent_files.write(tmp_path, "otel")
    agents = make_trace("otel", {"path": path, "max_gap_s": GAP_S, "network_ms": 0}, 0)
    voice = make_trace("voice", {"sessions": 2, "rate": 10.0, "turns": 1.0, "utterance_s": 0.5, "network_ms": 0}, 0)
    parts = [classify(voice, "voice", priority=0), classify(loop(agents, 2, 0.1), "agents", priority=10)]
    save_trace(merge(parts), tmp_path / "both.parquet")
    return tmp_path / "both.parquet"


def test_voice_and_jobs_go_to_their_own_servers_and_have_their_own_metrics(both: Path, tmp_path: Path) -> None:
    with NullServer("voice", tmp_path / "v") as voice, NullServer("text", tmp_path / "t") as text:
        experiment = live_experiment(
            {"url": voice.url, "text_url": text.url},
            {"workload": "file", "path": str(both), "send_delay_limit_ms": "10000"},
            {4: (20, None)},
        )
        [point] = expand(experiment)
        measured = measure_live(point)
    requests, metrics = measured.requests, {name: each["value"] for name, each in measured.metrics.items()}
    assert set(requests["status"]) == {"completed"} and len(requests) == 2 + 2 * STEPS
    assert requests.groupby("request_class").size().to_dict() == {"voice": 2, "agents": 2 * STEPS}
    assert requests.loc[requests["request_class"] == "voice", "audio_ttfp_s"].notna().all()
    assert metrics["jobs"] == 2
    assert metrics["job_tool_time_p50"] == pytest.approx(GAPS * GAP_S)
    assert metrics["job_time_p50"] >= GAPS * GAP_S + 2.4
    assert metrics["agents.ttft_p50"] > 0 and metrics["voice.completed"] is not None
