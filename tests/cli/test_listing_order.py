"""`rehearse list`: systems next to their baselines, and every metric."""

import json

from engines.registry import ENGINES, beside_baselines
from harness.metrics.live import LIVE_DEFINITIONS
from harness.metrics.turns import DEFINITIONS
from harness.metrics.vocabulary import OWN_DEFINITIONS
from tests.conftest import Rehearse


def test_every_engine_is_listed_once_and_a_baseline_after_its_system() -> None:
    assert all(set(system.against) <= ENGINES.keys() for system in ENGINES.values())
    groups = beside_baselines()
    listed = [name for system, baselines in groups.items() for name in (system, *baselines)]
    assert sorted(listed) == sorted(ENGINES)
    for system, baselines in groups.items():
        assert set(baselines) <= set(ENGINES[system].against) and system not in ENGINES[system].against
    assert groups["liveserve"] == ["vllm_omni", "vllm_omni_wo"]
    assert groups["metronome"][0] == "vllm_realtime" and groups["nova"] == ["multi_stream", "pf_limit", "chunked"]
    kinds = [ENGINES[system].kind for system in groups]
    assert kinds == sorted(kinds, key=["turns", "frames", *kinds].index)


def test_every_metric_is_listed_with_its_unit_and_meaning(rehearse: Rehearse) -> None:
    status, out, _ = rehearse("list", "metrics")
    line = next(line for line in out.splitlines() if line.startswith("audio_ttfp_p90 "))
    assert status == 0 and line.split()[1] == "s" and "P90 over turns: time to the first non-empty audio packet" in line
    rows = {row["name"]: row for row in json.loads(rehearse("list", "metrics", "--json")[1])}
    assert {*DEFINITIONS, *LIVE_DEFINITIONS, *OWN_DEFINITIONS} <= rows.keys() and "CLASS.ttft_p90" in rows
    assert rows["continuity"]["better"] == "higher" and "not" in rows["continuity"]["summary"]
    assert rehearse("list", "metrics", "continuity")[0] == 0
