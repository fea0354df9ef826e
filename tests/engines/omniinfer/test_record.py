"""A routing trace recorded from a model that vLLM executes."""

import numpy as np
import pytest

from engines.core.vllm_adapter.execution import ModelExecutor
from engines.core.vllm_adapter.routed_experts import RoutedExperts
from engines.devices.expert_parallel import ExpertParallel
from engines.systems.omniinfer.expert_load import read_routing, write_routing
from engines.systems.omniinfer.experts import expert_steps
from engines.systems.omniinfer.omniinfer_params import LoadParams
from tests.builders import in_own_process
from tests.engines.real import prompts, stage, steps, submit
from tools.record_experts import record
from workloads.errors import UserError


def served() -> tuple[np.ndarray, np.ndarray, list[int]]:
    """Counts as recorded, those of the largest logits of each router, and tokens of each step."""
    executor, logits = ModelExecutor(stage("moe_tiny")), []
    for name, module in executor.runner.model.named_modules():
        if name.endswith("mlp.gate"):
            module.register_forward_hook(lambda _, __, out: logits.append(out[0]))
    routed = RoutedExperts(executor, experts=8)
    out = {name: [] for name in submit(executor, prompts(5, seed=3), 6)}
    tokens = [scheduled.total_num_scheduled_tokens for scheduled in steps(executor, out)]
    chosen = [np.bincount(each.topk(2).indices.flatten().numpy(), minlength=8) for each in logits]
    executor.close()
    return routed.counts(), np.array(chosen), tokens


@pytest.mark.slow("runs a model on the CPU")
def test_counts_are_those_of_the_largest_logits_and_drive_the_step_time(tmp_path):
    """In a process of its own: vLLM makes its groups of experts with the first model of a process."""
    counts, chosen, tokens = in_own_process(served)
    assert counts.shape == (len(tokens), 4, 8)
    assert np.array_equal(counts.reshape(-1, 8), chosen)
    assert (counts.sum(axis=2) == 2 * np.array(tokens)[:, None]).all()

    path = tmp_path / "routing.parquet"
    write_routing(path, counts)
    assert np.array_equal(read_routing(path, 4, 8), counts)
    group = ExpertParallel(1e6, 2e6, 256, 512, 1e9, 1e9, 1e9, 1e-6)
    params = LoadParams.model_validate({"routing_trace": str(path), "load_every": 1})
    steps = expert_steps(params, group, 4, 8, 2, dies=4, seed=0, clock=lambda: 0.0)
    dies = counts[0].reshape(4, 4, 2).sum(axis=2)
    share, odd = divmod(tokens[0], 4)
    steps.step([share + (die < odd) for die in range(4)])
    assert steps.imbalance == pytest.approx((dies.max(axis=1) / dies.mean(axis=1)).mean())


def test_a_model_without_experts_is_refused():
    with pytest.raises(UserError, match="the model of stage 'thinker' has no experts"):
        record(stage("llama_tiny"), 1, 1, 0)
    with pytest.raises(UserError, match="nothing to record of 0 requests"):
        record(stage("moe_tiny"), 0, 1, 0)
