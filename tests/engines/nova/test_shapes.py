"""Times and memory of CogAgent-9B by its shapes: Nova's Tables I and VI."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.core.device import Row
from engines.deployments.kv_pool import pool_blocks
from engines.devices.layer_slots import pass_s, slots_of, sync_s
from engines.devices.roofline import Roofline, Work
from engines.devices.sharing import alone_s, tiled
from engines.server import ServerParams, resolve
from engines.systems.nova.vision import least_bandwidth

A6000 = resolve(ServerParams.of({"deployment": "cogagent_a6000"}))
DECODER = A6000.stages["thinker"].decoder
MIB = 2**20


def roofline(**server: int) -> Roofline:
    made = resolve(ServerParams.of({"deployment": "cogagent_a6000", **server}))
    stage = made.stages["thinker"]
    return Roofline(stage.decoder, made.gpu, 1, made.in_turn, made.waves, slots_of(stage))


def decode(batch: int) -> Work:
    return Work.of([Row("", 1, 1725, True)] * batch)


def test_alone_times_of_table_i():
    ours = roofline()
    assert alone_s(A6000.gpu, ours.image_step(1600)) == pytest.approx(0.8068, rel=0.01)
    assert ours.step(Work.of([Row("", 1702, 0, True)])).total_s == pytest.approx(0.3241, rel=0.01)
    assert ours.step(decode(1)).total_s == pytest.approx(0.0289, rel=0.01)
    assert ours.step(decode(10)).total_s == pytest.approx(0.0306, rel=0.03)


def test_products_run_in_tiles_and_waves():
    assert tiled(6400, 15360, 84) == (3000, pytest.approx(36 * 84 / 3000))  # Table IV
    blocks, idle = tiled(128, 13696, 84)
    assert blocks == 107 and idle == pytest.approx(168 * 128 * 128 / (128 * 13696))
    assert tiled(1, 13696, 84)[1] == pytest.approx(16 * idle)  # 16 rows are computed for one


@pytest.mark.parametrize(("slots", "mib"), [(None, 8595.2), (2, 692.1), (3, 821.6), (4, 951.1), (5, 1080.7)])
def test_memory_of_table_vi(slots: int | None, mib: float):
    assert DECODER.vision_encoder is not None
    assert DECODER.vision_encoder.weight_bytes(slots) / MIB == pytest.approx(mib, rel=1e-3)


def test_what_is_offloaded_is_room_for_kv():
    more = resolve(ServerParams.of({"deployment": "cogagent_a6000", "vision_slots": 2})).stages["thinker"]
    freed = 61 * 2 * 67_895_296 / more.block_bytes  # 61 layers
    less = pool_blocks(A6000.stages["thinker"], A6000.gpu)
    assert pool_blocks(more, A6000.gpu) - less == pytest.approx(freed, abs=1)


@given(st.integers(1, 6), st.integers(7, 70), st.floats(0.1, 2.0), st.floats(0.1, 2.0))
def test_a_pass_takes_the_recurrence_of_section_iii_e(slots: int, layers: int, layer_s: float, load_s: float):
    """Against the recurrence of section III-E, written out."""
    ended, loaded = [0.0] * layers, [0.0] * layers
    for i in range(layers):
        if i >= slots:
            loaded[i] = max(loaded[i - 1], ended[i - slots]) + load_s
        ended[i] = max(ended[i - 1] if i else 0.0, loaded[i]) + layer_s
    assert pass_s(layers, slots, layer_s, load_s) == pytest.approx(ended[-1])


@given(st.integers(2, 6), st.integers(7, 70), st.floats(0.5, 0.999))
def test_bandwidth_of_equation_8_suffices(slots: int, layers: int, spare: float):
    assert least_bandwidth(8e9, 0.5, layers, 1) == math.inf, "one slot always waits"
    enough = least_bandwidth(8e9, 0.5, layers, slots)
    assert enough <= 8e9 / 0.5  # M / T: 16 GB/s in the paper
    load_s = spare * (8e9 / layers) / enough
    at_most = pass_s(layers, slots, 0.5 / layers, min(load_s, spare * 0.5 / layers))
    assert at_most == pytest.approx(0.5)


def test_an_encoder_with_few_slots_waits_for_weights():
    image = Work(images=(1600,))
    raw, two = roofline().encoder_s(image), roofline(vision_slots=2).encoder_s(image)
    one = roofline(vision_slots=1).encoder_s(image)
    assert one > raw + 62 * 0.005
    assert two - raw == pytest.approx(63 * sync_s(2))
    assert roofline().step(Work(images=(1600,), tokens=1, requests=1)).before_s == pytest.approx(raw)
