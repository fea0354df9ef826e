"""Deployments on points that the papers publish: sizes, pools, and what steps take by kernels measured on such GPUs."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.core.device import Row
from engines.deployments import load_deployment
from engines.deployments.kv_pool import pool_blocks
from engines.devices.hardware import load_gpu
from engines.devices.kernels.choose import fitting
from engines.devices.kernels.steps import MeasuredSteps
from engines.devices.roofline import Roofline, Work
from engines.server import ServerParams, resolve


def served(name: str = "qwen3_omni_2gpu", **server):
    return resolve(ServerParams.of({"deployment": name, **server}))


PRO_6000, QWEN3 = load_gpu("rtx_pro_6000"), served("qwen3_omni_pro6000")


def decode(batch: int, context: int) -> Work:
    pairs = batch * context
    return Work(requests=batch, tokens=batch, kv_tokens=pairs, attention_pairs=pairs, samples=batch)


def measured(name: str) -> MeasuredSteps:
    """Steps of the deployment's thinker by measured kernels."""
    deployment = served(name)
    stage = deployment.stages["thinker"]
    found = fitting(deployment.model.name, stage.name, stage.decoder, deployment.gpu.name, stage.split)
    assert found is not None
    return MeasuredSteps(stage.decoder, deployment.gpu, found[1])


def step_s(deployment: str, *rows: tuple[int, int]) -> float:
    """Seconds of a step of rows (new tokens, context)."""
    work = Work.of([Row(str(i), tokens, context, True) for i, (tokens, context) in enumerate(rows)])
    return measured(deployment).step(work).total_s


METRONOME = {  # KiB of KV a token, parameters, seconds of a frame and its tokens
    "qwen3_omni_pro6000": (96, 30.5e9, 2.0, 28),
    "minicpm_o_pro6000": (144, 8.2e9, 1.0, 12),
    "qwen2_5_omni_pro6000": (56, 7.6e9, 2.0, 52),
    "moshi_pro6000": (512, 6.9e9, 0.08, 1),  # 7.7 B with the codebooks' own weights and embeddings
}


@pytest.mark.parametrize("name", METRONOME)
def test_models_of_metronome_have_their_published_sizes_and_fit(name: str):
    kib, parameters, frame_s, tokens = METRONOME[name]
    deployment = served(name)
    stage, model = deployment.stages["thinker"], deployment.model
    decoder = stage.decoder
    assert decoder.kv_bytes_per_token == kib * 1024
    embeddings = 2 * decoder.vocab * decoder.hidden
    stored = (decoder.weight_bytes - embeddings * decoder.dtype_bytes) / decoder.layer_dtype_bytes
    assert stored + embeddings == pytest.approx(parameters, rel=0.02)
    assert stage.kv_blocks < pool_blocks(stage, deployment.gpu)
    assert not deployment.speaks and stage.max_num_seqs >= 512  # sessions that wait for audio count as slots
    assert math.ceil(frame_s * model.input_tokens_per_s) + model.chunk_extra_tokens == tokens


def test_the_pool_gives_the_occupancies_of_table_2():
    """A window of W tokens is W / 16 blocks and up to one more; 32 sessions, percent of the pool."""
    blocks = QWEN3.stages["thinker"].kv_blocks
    for window, percent in ((512, 3.3), (1024, 6.4), (2048, 12.7)):
        assert 100 * 32 * (window / 16 + 1) / blocks == pytest.approx(percent, abs=0.1)
    assert blocks * QWEN3.stages["thinker"].block_bytes == pytest.approx(51.1e9, rel=0.01)


def test_decode_steps_take_what_metronome_publishes():
    """3 to 5, about 20 and about 23 ms at 1, 32 and 128 sessions, then the KV read on top: by kernels measured on
    such a GPU, to which nothing of these was fitted. That 32 sessions take 16 ms contradicts the load over experts,
    which was counted for text."""
    decoder, steps = QWEN3.stages["thinker"].decoder, measured("qwen3_omni_pro6000")

    def device_s(batch: int, context: int = 0) -> float:
        return steps.step(decode(batch, context)).total_s - decoder.host_s - decoder.host_s_per_request * batch

    assert 3e-3 <= device_s(1) <= 5e-3
    assert device_s(32) == pytest.approx(20e-3, rel=0.2)
    assert device_s(128) == pytest.approx(23e-3, rel=0.08)
    for context, more_s in ((1024, 9.6e-3), (3000, 28e-3)):
        assert device_s(128, context) - device_s(128) == pytest.approx(more_s, rel=0.16)


@pytest.mark.parametrize(("outputs", "template", "context"), [(12, 16, 45 * 55), (27, 0, 1024)])
def test_a_tick_of_160_sessions_fits_its_frame(outputs: int, template: int, context: int):
    """Fig. 4a is flat to 160 sessions, so encoder, prefill and decode of a frame take less than 2 s."""
    n, fed = 160, 28 + template
    roofline = Roofline(QWEN3.stages["thinker"].decoder, QWEN3.gpu)
    prefill = Work(requests=n, tokens=n * fed, kv_tokens=n * (context + fed), samples=n, clips=n)
    prefill.attention_pairs, prefill.audio_s = n * fed * context, 2 * n
    step = roofline.step(decode(n, context)).total_s
    assert roofline.step(prefill).total_s + (outputs - 1) * step < 2.0
    # What Fig. 7 was calibrated to
    assert roofline.encoder_s(Work(clips=1, audio_s=2.0)) == pytest.approx(2.5e-3)


@given(st.integers(1, 4000))
def test_fp8_weights_halve_the_bytes_and_double_the_rate(tokens: int):
    fp8, bf16 = QWEN3.stages["thinker"].decoder, served().stages["thinker"].decoder
    work = Work(tokens=tokens)  # no KV, no attention: those stay in bf16
    slow, fast = Roofline(bf16, PRO_6000).layer_s(work), Roofline(fp8, PRO_6000).layer_s(work)
    assert slow / 2 <= fast <= slow / 2 * 1.05  # activations stay in bf16, too
    a6000, many = (load_gpu("a6000"), Work(tokens=20_000))  # which cannot multiply them, so they only save bytes
    assert Roofline(fp8, a6000).layer_s(many) == Roofline(bf16, a6000).layer_s(many)


def test_only_qwen2_5_omni_spends_more_on_its_encoder_than_on_decode():
    """Qwen2.5-Omni is bound by its encoder (section 5.5): more than by all decode steps of a frame of 64 sessions."""
    roofline = {name: Roofline(served(name).stages["thinker"].decoder, PRO_6000) for name in METRONOME}
    share = {
        name: 64 * each.encoder_s(Work(clips=1, audio_s=1.0)) / (12 * each.step(decode(64, 1024)).total_s)
        for name, each in roofline.items()
    }
    assert [name for name in METRONOME if share[name] > 1] == ["qwen2_5_omni_pro6000"]


def test_a_chunk_of_a_prompt_takes_as_long_as_in_the_paper() -> None:
    """ConServe, section 4.2, to which nothing was fitted: 47.1 and 118.8 ms here."""
    assert step_s("llama_8b_h100", (2048, 0)) == pytest.approx(0.051, rel=0.08)
    assert step_s("llama_8b_h100", (2048, 40_960)) == pytest.approx(0.124, rel=0.05)
    # `--set step_times=roofline` is calibrated on the first of them.
    own = load_deployment("llama_8b_h100")
    roofline, work = Roofline(own.stages["thinker"].decoder, own.gpu), Work.of([Row("", 2048, 0, True)])
    assert roofline.step(work).total_s == pytest.approx(0.051, rel=0.04)


def test_four_gpus_take_the_papers_iteration_for_a_batch_that_is_no_chunk_of_2048() -> None:
    """262 ms, which the paper gives without its batch: 80 layers of 3.3 ms, as many tokens as fit the offline mode."""
    assert step_s("llama_70b_4xh100", (2048, 0)) < 0.6 * 0.262
    assert step_s("llama_70b_4xh100", (3712, 0)) == pytest.approx(0.262, rel=0.02)


@pytest.mark.parametrize(
    ("name", "tokens"), [("llama_8b_h100", 457_000), ("qwen2_5_14b_h100", 244_000), ("llama_70b_4xh100", 497_000)]
)
def test_the_pools_hold_what_the_paper_states(name: str, tokens: int) -> None:
    stage = served(name).stages["thinker"]
    assert stage.kv_blocks * stage.block_size == pytest.approx(tokens, rel=0.04)
    assert stage.max_model_len >= 32_768 + 8192 and stage.host_kv_gb == 64 and stage.prefix_caching


def test_the_gpu_rates_of_a_deployment_do_not_carry_over_to_another_gpu() -> None:
    usual, ours = load_gpu("h100"), load_deployment("llama_8b_h100").gpu
    assert (ours.flops, ours.pcie_bandwidth) == (606e12, 37e9)
    assert ours.bandwidth == usual.bandwidth and usual.flops == pytest.approx(0.67 * 989e12)
    same, other = (served("llama_8b_h100", gpu=gpu).gpu for gpu in ("h100", "h200"))
    assert same == ours and other == load_gpu("h200")


def test_max_num_batched_tokens_is_the_budget_of_the_first_stage() -> None:
    larger = served(max_num_batched_tokens=4096).stages
    assert larger["thinker"].max_num_batched_tokens == 4096
    assert larger["talker"] == served().stages["talker"]
    assert "max_num_batched_tokens" not in ServerParams.of({}).model_dump()
