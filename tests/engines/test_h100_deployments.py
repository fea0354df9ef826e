"""The deployments of co-serving: what their GPUs reach, by kernels measured on such GPUs, on points of the paper's."""

import pytest

from engines.core.device import Row
from engines.deployments import load_deployment
from engines.devices.hardware import load_gpu
from engines.devices.kernels.choose import fitting
from engines.devices.kernels.steps import MeasuredSteps
from engines.devices.roofline import Roofline, Work
from engines.server import ServerParams, resolve
from workloads.errors import UserError


def step_s(deployment: str, *rows: tuple[int, int]) -> float:
    """Seconds of a step of rows (new tokens, context)."""
    resolved = resolve(ServerParams(deployment=deployment))
    stage = resolved.stages["thinker"]
    work = Work.of([Row(str(i), tokens, context, True) for i, (tokens, context) in enumerate(rows)])
    found = fitting(resolved.model.name, stage.name, stage.decoder, resolved.gpu.name, stage.split)
    assert found is not None
    return MeasuredSteps(stage.decoder, resolved.gpu, found[1]).step(work).total_s


def test_a_chunk_of_a_prompt_takes_as_long_as_in_the_paper() -> None:
    """ConServe, section 4.2, to which nothing was fitted: 47.1 and 118.8 ms here."""
    assert step_s("llama_8b_h100", (2048, 0)) == pytest.approx(0.051, rel=0.08)
    assert step_s("llama_8b_h100", (2048, 40_960)) == pytest.approx(0.124, rel=0.05)


def test_the_roofline_of_the_deployment_is_calibrated_on_the_first_of_them() -> None:
    """`--set step_times=roofline` is the way back to it."""
    resolved = load_deployment("llama_8b_h100")
    decoder, work = resolved.stages["thinker"].decoder, Work.of([Row("", 2048, 0, True)])
    assert Roofline(decoder, resolved.gpu).step(work).total_s == pytest.approx(0.051, rel=0.04)


def test_four_gpus_take_the_papers_iteration_for_a_batch_that_is_no_chunk_of_2048() -> None:
    """262 ms, which the paper gives without its batch: 80 layers of 3.3 ms, as many tokens as fit the offline mode."""
    assert step_s("llama_70b_4xh100", (2048, 0)) < 0.6 * 0.262
    assert step_s("llama_70b_4xh100", (3712, 0)) == pytest.approx(0.262, rel=0.02)


@pytest.mark.parametrize(
    ("name", "tokens"),
    [("llama_8b_h100", 457_000), ("qwen2_5_14b_h100", 244_000), ("llama_70b_4xh100", 497_000)],
)
def test_the_pools_hold_what_the_paper_states(name: str, tokens: int) -> None:
    stage = resolve(ServerParams(deployment=name)).stages["thinker"]
    assert stage.kv_blocks * stage.block_size == pytest.approx(tokens, rel=0.04)
    assert stage.max_model_len >= 32_768 + 8192 and stage.host_kv_gb == 64 and stage.prefix_caching


def test_what_a_gpu_was_seen_to_reach_is_of_that_gpu() -> None:
    usual, ours = load_gpu("h100"), load_deployment("llama_8b_h100").gpu
    assert (ours.flops, ours.pcie_bandwidth) == (606e12, 37e9)
    assert ours.bandwidth == usual.bandwidth and usual.flops == pytest.approx(0.67 * 989e12)
    same, other = (resolve(ServerParams(deployment="llama_8b_h100", gpu=gpu)).gpu for gpu in ("h100", "h200"))
    assert same == ours and other == load_gpu("h200")


def test_the_budget_of_a_step_is_the_first_stages() -> None:
    server = ServerParams(max_num_batched_tokens=4096)
    stages = resolve(server).stages
    assert stages["thinker"].max_num_batched_tokens == 4096
    assert stages["talker"] == resolve(ServerParams()).stages["talker"]
    assert server.model_dump()["max_num_batched_tokens"] == 4096
    assert "max_num_batched_tokens" not in ServerParams().model_dump()


@pytest.mark.parametrize(
    ("server", "told"),
    [
        (
            {"deployment": "llama_8b_h100", "max_num_batched_tokens": 200},
            "max_num_batched_tokens=200 is less than the 256 requests",
        ),
        (
            {"deployment": "llama_8b_h100", "max_num_batched_tokens": 300, "block_size": 512},
            "max_num_batched_tokens=300 is less than the 512 tokens of a KV block",
        ),
    ],
)
def test_a_budget_that_is_too_small_is_refused(server: dict, told: str) -> None:
    with pytest.raises(UserError, match=told):
        resolve(ServerParams.model_validate(server))


def test_a_step_holds_no_more_than_its_budget() -> None:
    from tests.engines.replays import replay
    from workloads.registry import make_trace

    trace = make_trace(
        "co_serving", {"requests": 5, "documents": 4, "input_tokens": 4096, "output_tokens": 8}, 0
    )
    steps = {}
    for budget in (None, 512):
        server = {"deployment": "llama_8b_h100", "max_num_batched_tokens": budget}
        steps[budget] = replay("vllm_omni_wo", {}, server, {}, trace, 0).steps
    assert max(steps[512]["tokens"].to_pylist()) == 512 < max(steps[None]["tokens"].to_pylist()) <= 8192
