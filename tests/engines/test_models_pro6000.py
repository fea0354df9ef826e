"""The four models of the Metronome paper on one RTX PRO 6000: published sizes, step times, what a tick must fit."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.devices.hardware import load_gpu
from engines.devices.kernels.choose import shipped
from engines.devices.kernels.steps import MeasuredSteps
from engines.devices.roofline import Roofline, Work
from engines.server import ServerParams, resolve

MODELS = ("qwen3_omni_pro6000", "minicpm_o_pro6000", "qwen2_5_omni_pro6000", "moshi_pro6000")
PRO_6000 = load_gpu("rtx_pro_6000")
QWEN3 = resolve(ServerParams(deployment="qwen3_omni_pro6000"))


def served(name: str):
    return resolve(ServerParams(deployment=name))


def decode(batch: int, context: int) -> Work:
    return Work(
        requests=batch,
        tokens=batch,
        kv_tokens=batch * context,
        attention_pairs=batch * context,
        samples=batch,
    )


@pytest.mark.parametrize(
    ("name", "kib", "parameters"),
    [
        ("qwen3_omni_pro6000", 96, 30.5e9),
        ("minicpm_o_pro6000", 144, 8.2e9),
        ("qwen2_5_omni_pro6000", 56, 7.6e9),
        ("moshi_pro6000", 512, 6.9e9),  # 7.7 B with the codebooks' own weights and embeddings
    ],
)
def test_sizes_are_the_published_ones(name: str, kib: int, parameters: float):
    decoder = served(name).stages["thinker"].decoder
    assert decoder.kv_bytes_per_token == kib * 1024
    embeddings = 2 * decoder.vocab * decoder.hidden
    stored = (decoder.weight_bytes - embeddings * decoder.dtype_bytes) / decoder.layer_dtype_bytes
    assert stored + embeddings == pytest.approx(parameters, rel=0.02)


@pytest.mark.parametrize("name", MODELS)
def test_weights_and_pool_fit_beside_the_reserve(name: str):
    deployment = served(name)
    stage = deployment.stages["thinker"]
    assert stage.real_bytes < stage.memory_share * deployment.gpu.memory_bytes - 4e9 + 1e8
    assert not deployment.speaks and stage.max_num_seqs >= 512  # sessions that wait for audio count as slots


@pytest.mark.parametrize(
    ("name", "frame_s", "tokens"),
    [
        ("qwen3_omni_pro6000", 2.0, 28),
        ("minicpm_o_pro6000", 1.0, 12),
        ("qwen2_5_omni_pro6000", 2.0, 52),
        ("moshi_pro6000", 0.08, 1),
    ],
)
def test_a_chunk_has_the_published_tokens(name: str, frame_s: float, tokens: int):
    model = served(name).model
    assert math.ceil(frame_s * model.input_tokens_per_s) + model.chunk_extra_tokens == tokens


def test_the_pool_gives_the_occupancies_of_table_2():
    """A window of W tokens is W / 16 blocks and up to one more; 32 sessions, percent of the pool."""
    blocks = QWEN3.stages["thinker"].kv_blocks
    for window, percent in ((512, 3.3), (1024, 6.4), (2048, 12.7)):
        assert 100 * 32 * (window / 16 + 1) / blocks == pytest.approx(percent, abs=0.1)
    assert blocks * QWEN3.stages["thinker"].block_bytes == pytest.approx(51.1e9, rel=0.01)


def test_decode_steps_lie_at_the_anchors():
    """3 to 5, about 20 and about 23 ms at 1, 32 and 128 sessions, then the KV read on top: by kernels measured on
    such a GPU, to which nothing of these was fitted."""
    decoder = QWEN3.stages["thinker"].decoder
    kernels = shipped("qwen3_omni_30b_a3b_fp8", "rtx_pro_6000")
    assert kernels is not None
    steps = MeasuredSteps(decoder, QWEN3.gpu, kernels.of("thinker", 1))  # type: ignore[arg-type]
    host = {b: decoder.host_s + decoder.host_s_per_request * b for b in (1, 32, 128)}
    device = {b: steps.step(decode(b, 0)).total_s - host[b] for b in host}
    assert 3e-3 <= device[1] <= 5e-3
    assert device[32] == pytest.approx(20e-3, rel=0.05)
    assert device[128] == pytest.approx(23e-3, rel=0.08)
    for context, more in ((1024, 9.6e-3), (3000, 28e-3)):
        read = steps.step(decode(128, context)).total_s - device[128] - host[128]
        assert read == pytest.approx(more, rel=0.16)


@pytest.mark.parametrize(("outputs", "template", "context"), [(12, 16, 45 * 55), (27, 0, 1024)])
def test_a_tick_of_160_sessions_fits_its_frame(outputs: int, template: int, context: int):
    """Fig. 4a is flat to 160 sessions, so encoder, prefill and decode of a frame take less than 2 s."""
    n, fed = 160, 28 + template
    roofline = Roofline(QWEN3.stages["thinker"].decoder, QWEN3.gpu)
    prefill = Work(
        requests=n,
        tokens=n * fed,
        kv_tokens=n * (context + fed),
        attention_pairs=n * fed * context,
        samples=n,
        clips=n,
        audio_s=2 * n,
    )
    step = roofline.step(decode(n, context)).total_s
    assert roofline.step(prefill).total_s + (outputs - 1) * step < 2.0


def test_ingest_and_encoder_of_a_chunk_take_what_fig_7_was_calibrated_to():
    roofline = Roofline(QWEN3.stages["thinker"].decoder, QWEN3.gpu)
    assert roofline.encoder_s(Work(clips=1, audio_s=2.0)) == pytest.approx(2.5e-3)


@given(st.integers(1, 4000))
def test_fp8_weights_halve_the_bytes_and_double_the_rate(tokens: int):
    fp8 = QWEN3.stages["thinker"].decoder
    bf16 = resolve(ServerParams()).stages["thinker"].decoder
    work = Work(tokens=tokens)  # no KV, no attention: those stay in bf16
    slow, fast = Roofline(bf16, PRO_6000).layer_s(work), Roofline(fp8, PRO_6000).layer_s(work)
    assert slow / 2 <= fast <= slow / 2 * 1.05  # activations stay in bf16, too


def test_fp8_weights_on_a_gpu_that_cannot_multiply_them_only_save_bytes():
    a6000, fp8 = load_gpu("a6000"), QWEN3.stages["thinker"].decoder
    bf16 = resolve(ServerParams()).stages["thinker"].decoder
    many = Work(tokens=20_000)
    assert Roofline(fp8, a6000).layer_s(many) == Roofline(bf16, a6000).layer_s(many)


def test_encoders_cost_more_where_more_is_encoded():
    """Qwen2.5-Omni is bound by its encoder (section 5.5): more than by all decode steps of a frame of 64 sessions."""
    roofline = {name: Roofline(served(name).stages["thinker"].decoder, PRO_6000) for name in MODELS}
    cost = {name: each.encoder_s(Work(clips=1, audio_s=1.0)) for name, each in roofline.items()}
    assert max(cost, key=cost.__getitem__) == "qwen2_5_omni_pro6000"
    bound = {
        name: 64 * cost[name] > 12 * each.step(decode(64, 1024)).total_s for name, each in roofline.items()
    }
    assert [name for name in MODELS if bound[name]] == ["qwen2_5_omni_pro6000"]
