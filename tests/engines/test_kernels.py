"""Step times from measured kernels: grids, what is between their points, when they are used, what goes beside them."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.core.device import Row
from engines.deployments import load_deployment
from engines.deployments.export_kernels import settled
from engines.devices.hardware import load_gpu
from engines.devices.host import FOUR_GPU_ALLREDUCE, MHA_DECODES, PROMPT_STEP, as_shown
from engines.devices.kernels.choose import fitting, shipped, shipped_models
from engines.devices.kernels.grids import as_kernels, shape
from engines.devices.kernels.steps import FittedSteps, MeasuredSteps, gpu_s
from engines.devices.kernels.times import GridTimes, largest_fall
from engines.devices.roofline import Roofline, Work
from engines.models import load_model
from engines.server import ResolvedServer, ServerParams
from harness.replays.step_times import FITTED, step_sources
from tools import check_kernels, fit_kernels, ship_kernels
from workloads.errors import UserError

SHIPPED = {
    "a100": (22, 60, "d2aecdca571da28943879ecc12f49e9434edf6721615633a1062e6c5243a0f61"),
    "b200": (28, 73, "ff526d26d528d5fa57d2b23d236a3aefc0648e80e8abe844dca2031cba4fb0ab"),
    "b300": (28, 73, "64a6c9d318c2945dd10ce52799896fca483a5e30fe446cc99f0c4604836c4eae"),
    "gb200": (28, 73, "ff91201599432fa1effa4a48ccacfda9b70e6251c7350e92e35fbaefd6391541"),
    "gb300": (28, 73, "ac97b2b034bddc8634d80845cd6c19ba0bd95d0d320d79786d0d9b1118250544"),
    "h100": (28, 73, "9ed3c1e4608ffbb6ab998eab3b42ee20abba937b1f98ba38340224716b702a1e"),
    "h200": (28, 73, "8866cbae0e16c50a20cdcd452a0eb8b0ee9ce08b180284fc2ac393ff22d528e0"),
    "l40s": (28, 73, "1e0d6328bd27b61577537cb99b353f72fa078f7151006c653199105127a91356"),
    "rtx_pro_6000": (28, 73, "975a762f89a27b494ed4609845a9d72a8c25ea68aa0f76bfe91583142c58e744"),
}
"""GPU -> its models, their stages by split, and SHA-256 over all of their kernels as JSON, which has floats to the last
bit. New measurements change them."""
MEDIAN, WORST = 0.03, 0.10
LLAMA = load_model("llama_3_1_8b").stages["thinker"]


def llama() -> GridTimes:
    return GridTimes(kernels("llama_3_1_8b"))


def kernels(model: str, gpu: str = "h100", stage: str = "thinker", gpus: int = 1):
    file = shipped(model, gpu)
    assert file is not None
    found = file.of(stage, gpus)
    assert found is not None
    return found


def rows(*pairs: tuple[int, int]) -> Work:
    return Work.of([Row("", new, context, True) for new, context in pairs])


@pytest.mark.parametrize("gpu", SHIPPED)
def test_grids_of_the_models_held_against_them_are_within_three_per_cent_and_ten(gpu: str) -> None:
    """At points that are none of the grid's, as the file itself says."""
    for model in ("llama_3_1_8b", "qwen3_omni_30b_a3b"):
        for step, error in kernels(model, gpu).held_out.items():
            assert error.median <= MEDIAN and error.worst <= WORST, (model, step)


@pytest.mark.parametrize("gpu", SHIPPED)
def test_every_value_is_as_it_was_measured_to_the_last_bit(gpu: str) -> None:
    digest, stages = hashlib.sha256(), 0
    for model in shipped_models(gpu):
        file = shipped(model, gpu)
        assert file is not None
        digest.update(json.dumps(file.model_dump(mode="json")).encode())
        stages += len(file.kernels)
    assert (len(shipped_models(gpu)), stages, digest.hexdigest()) == SHIPPED[gpu]


@pytest.mark.parametrize("gpu", SHIPPED)
def test_grids_can_be_swept_over_batch_size_split_and_gpu(gpu: str) -> None:
    assert not [f"{each.stage}: {each.sentence}" for each in check_kernels.findings(gpu)]


def test_a_grid_that_falls_is_settled_and_another_is_as_it_was() -> None:
    """Between powers of two, sizes keep their distance from these."""
    own = kernels("llama_3_1_8b")
    assert settled(own) is own
    line = own.products
    broken = line.model_copy(
        update={"ms": [3 * ms if at < 64 else ms for at, ms in zip(line.at, line.ms, strict=True)]}
    )
    stage = settled(own.model_copy(update={"products": broken}))
    assert largest_fall(stage) < 1e-3
    i, j = line.at.index(128), line.at.index(129)
    assert stage.products.ms[j] / stage.products.ms[i] == pytest.approx(line.ms[j] / line.ms[i], rel=0.01)


def test_scaled_grids_are_named_with_the_step_times() -> None:
    """The package measured all-reduces over four GB200, and none over eight."""
    assert "allreduce" in kernels("llama_3_1_70b", "gb200", gpus=8).scaled
    assert not kernels("llama_3_1_70b", "gb200", gpus=4).scaled
    talker = step_sources(ResolvedServer.of(ServerParams(deployment="qwen3_omni_2gpu")))["talker"]
    assert talker.endswith("; scaled from other sizes, not measured: routed experts")


def test_a_gpus_file_is_written_as_it_is_read(tmp_path: Path) -> None:
    """The same bytes each time; another pyarrow writes its own version into them, so tables are compared with ours."""
    found = [file for model in shipped_models("h100") if (file := shipped(model, "h100")) is not None]
    for order in (found, found[::-1]):
        ship_kernels.save("h100", order, tmp_path)
        (tmp_path / "h100.parquet").rename(tmp_path / f"{len(list(tmp_path.iterdir()))}")
    first, second = sorted(tmp_path.iterdir())
    assert first.read_bytes() == second.read_bytes()
    made, ours = pq.read_table(first), pq.read_table(ship_kernels.FOLDER / "h100.parquet")
    assert made.equals(ours, check_metadata=True) and made.schema.metadata[b"gpu"] == b"h100"


def test_every_file_says_where_it_is_from_and_is_of_a_model_and_gpu_that_exist() -> None:
    for gpu in SHIPPED:
        for model in shipped_models(gpu):
            file = shipped(model, gpu)
            assert file is not None and (file.model, file.gpu) == (model, gpu)
            assert file.package.startswith("aiconfigurator-core") and file.backend.startswith("vLLM")
            for each in file.kernels:
                assert each.fits(load_model(model).stages[each.stage]), (gpu, model, each.stage)
                assert each.held_out and set(each.sources) >= {"products", "decodes", "prompts"}


def test_a_point_of_the_grid_is_as_measured() -> None:
    """To the 0.1 us to which times are rounded."""
    own, times = kernels("llama_3_1_8b"), llama()
    assert times.over_tokens(1024) == pytest.approx(own.products.ms[own.products.at.index(1024)], abs=1e-4)
    i, j = own.decodes.requests.index(16), own.decodes.context.index(2048)
    assert times.decodes(16, 2048) == pytest.approx(own.decodes.ms[i][j], abs=1e-3)
    h, i, j = own.prompts.prompts.index(4), own.prompts.new.index(256), own.prompts.before.index(2048)
    assert times.prompts(4, 256, 2048) == pytest.approx(own.prompts.ms[h][i][j], abs=1e-4)


@given(st.integers(1, 700), st.floats(1, 200_000))
def test_attention_of_decodes_lies_between_its_neighbours_on_the_grid(requests: int, context: float) -> None:
    own, times = kernels("llama_3_1_8b"), llama()
    inside = requests <= own.decodes.requests[-1] and context <= own.decodes.context[-1]
    ms = times.decodes(requests, context)
    assert ms > 0
    if inside:
        low = max([r for r in own.decodes.requests if r <= requests])
        high = min([r for r in own.decodes.requests if r >= requests])
        left = max([c for c in own.decodes.context if c <= max(context, own.decodes.context[0])])
        right = min([c for c in own.decodes.context if c >= context])
        corners = [
            own.decodes.ms[own.decodes.requests.index(r)][own.decodes.context.index(c)]
            for r in (low, high)
            for c in (left, right)
        ]
        assert min(corners) - 1e-3 <= ms <= max(corners) + 1e-3


def test_beyond_the_grid_time_grows_as_at_its_end() -> None:
    times = llama()
    twice = times.over_tokens(2 * 32768) / times.over_tokens(32768)
    assert twice == pytest.approx(times.over_tokens(32768) / times.over_tokens(16384), rel=0.01)
    assert times.decodes(1, 1) == times.decodes(1, 16)


def test_a_lone_prompt_and_decodes_take_what_their_kernels_take() -> None:
    steps, times = MeasuredSteps(LLAMA, load_gpu("h100"), kernels("llama_3_1_8b")), llama()
    decodes = rows(*[(1, 999)] * 8)
    assert 1e3 * gpu_s(steps, decodes) == pytest.approx(times.decode_step_ms(8, 1000))
    layers = times.over_tokens(640) + times.prompts(1, 640, 0)
    assert 1e3 * steps.layer_s(rows((640, 0))) * LLAMA.layers == pytest.approx((1 + PROMPT_STEP) * layers)


def test_a_mixed_step_takes_longer_by_its_share_of_prompt_tokens() -> None:
    steps = MeasuredSteps(LLAMA, load_gpu("h100"), kernels("llama_3_1_8b"))
    for share, work in ((1.0, rows((640, 0))), (0.5, rows((64, 0), *[(1, 700)] * 64))):
        assert steps.layer_s(work) == pytest.approx((1 + share * PROMPT_STEP) * steps.kernels_s(work))


def test_all_reduces_over_four_gpus_and_decodes_without_gqa_take_what_servers_show() -> None:
    work, gpu = rows(*[(1, 699)] * 16), load_gpu("h100")
    four, eight = (kernels("llama_2_70b", gpus=gpus) for gpus in (4, 8))
    assert four.allreduce is not None
    decoder = load_model("llama_2_70b").stages["thinker"]
    ms = 1e3 * decoder.layers * MeasuredSteps(decoder, gpu, four).kernels_s(work)
    times, at = GridTimes(four), four.allreduce.at.index(16)
    more = (FOUR_GPU_ALLREDUCE - 1) * four.allreduce.ms[at]
    assert ms == pytest.approx(times.over_tokens(16) + times.decodes(16, 700) + more, rel=1e-4)
    times = GridTimes(eight)
    ms = 1e3 * decoder.layers * MeasuredSteps(decoder, gpu, eight).kernels_s(work)
    assert ms == pytest.approx(times.over_tokens(16) + times.decodes(16, 700), rel=1e-6)
    own, times = load_model("llama_2_7b").stages["thinker"], GridTimes(kernels("llama_2_7b"))
    ms = 1e3 * own.layers * MeasuredSteps(own, gpu, kernels("llama_2_7b")).kernels_s(work)
    assert ms == pytest.approx(times.over_tokens(16) + MHA_DECODES * times.decodes(16, 700), rel=1e-4)


def test_prompts_of_unlike_lengths_weigh_as_their_tokens_do() -> None:
    """A few tokens beside a long prompt change little; two equal prompts are a batch of two."""
    steps, times = MeasuredSteps(LLAMA, load_gpu("h100"), kernels("llama_3_1_8b")), llama()
    two = steps.kernels_s(rows((512, 0), (512, 0))) * LLAMA.layers
    assert 1e3 * two == pytest.approx(times.over_tokens(1024) + times.prompts(2, 512, 0))
    lone, beside = steps.kernels_s(rows((4000, 0))), steps.kernels_s(rows((4000, 0), (16, 0)))
    assert lone < beside < 1.03 * lone


def test_only_the_very_decoder_that_was_measured_has_its_kernels() -> None:
    from dataclasses import replace

    assert fitting("llama_3_1_8b", "thinker", LLAMA, "h100", 1) is not None
    # Of another name, but the same sizes
    assert fitting("a checkpoint", "thinker", LLAMA, "h100", 1) is not None
    assert fitting("llama_3_1_8b", "thinker", replace(LLAMA, ffn=LLAMA.ffn + 8), "h100", 1) is None
    assert fitting("llama_3_1_8b", "thinker", LLAMA, "h100", 8) is None
    assert fitting("llama_3_1_8b", "thinker", LLAMA, "a6000", 1) is None


def test_gpus_without_nvlink_share_a_decoder_where_all_reduces_were_measured() -> None:
    measured = fitting("llama_3_1_8b", "thinker", LLAMA, "l40s", 2)
    assert measured is not None and load_gpu("l40s").nvlink_bandwidth == 0
    alone = fitting("llama_3_1_8b", "thinker", LLAMA, "l40s", 1)
    assert alone is not None
    two, one = (MeasuredSteps(LLAMA, load_gpu("l40s"), each) for each in (measured[1], alone[1]))
    work = rows(*[(1, 2000)] * 8)
    assert 0.5 < gpu_s(two, work) / gpu_s(one, work) < 1


def test_a_points_step_times_are_named() -> None:
    measured = step_sources(ResolvedServer.of(ServerParams(deployment="qwen3_omni_2gpu")))
    assert set(measured) == {"thinker", "talker", "vocoder"} and all("h200" in each for each in measured.values())
    back = step_sources(ResolvedServer.of(ServerParams(deployment="qwen3_omni_2gpu", step_times="roofline")))
    assert set(back.values()) == {FITTED}


def test_what_if_the_bandwidth_were_another_scales_measured_times_as_it_does_the_rooflines() -> None:
    from dataclasses import replace

    from engines.devices.kernels.choose import steps_of

    stage, gpu = load_deployment("llama_8b_1gpu").stages["thinker"], load_gpu("h100")
    faster, work = replace(gpu, bandwidth=2 * gpu.bandwidth), rows(*[(1, 2000)] * 4)
    plain = steps_of(stage, gpu, kernels("llama_3_1_8b"))
    asked = steps_of(stage, faster, kernels("llama_3_1_8b"), (stage.decoder, gpu))
    assert plain is not None and asked is not None
    ratio = gpu_s(Roofline(stage.decoder, faster), work) / gpu_s(Roofline(stage.decoder, gpu), work)
    assert ratio == pytest.approx(0.5, rel=0.01)
    assert asked.layer_s(work) / plain.layer_s(work) == pytest.approx(ratio, rel=1e-6)


@pytest.mark.parametrize("gpu", SHIPPED)
@pytest.mark.parametrize("fitted", [True, False], ids=["fitted to", "other models"])
def test_the_fitted_roofline_is_near_the_grids_in_the_middle(gpu: str, fitted: bool) -> None:
    """Within a tenth on all but the A100, whose kernels reach more of its peaks than those of later GPUs."""
    ratios = [
        fit_kernels.whole_steps(on, decoder, kernels)
        for model, on, decoder, kernels in fit_kernels.stages()
        if on == gpu and (model in fit_kernels.FITTED_TO) == fitted
    ]
    assert np.median(np.abs(np.concatenate(ratios) - 1)) < (0.15 if gpu == "a100" else 0.1)


def test_without_measured_kernels_experts_and_attention_have_rooflines_of_their_own() -> None:
    decoder = load_model("qwen3_omni_30b_a3b").stages["thinker"]
    steps = FittedSteps(decoder, load_gpu("h200"))
    lone, plain = (steps.kernels_s(rows((1, 1000))), Roofline(decoder, load_gpu("h200")).layer_s(rows((1, 1000))))
    assert lone > plain  # launches, which a lone request of a mixture of experts waits for
    assert steps.kernels_s(rows((1, 100_000))) > lone


def test_planning_ahead_hides_the_host_time_of_each_request() -> None:
    shown = as_shown(LLAMA, True)
    assert LLAMA.host_s > 0 and LLAMA.host_s_per_request > 0
    assert (shown.host_s, shown.host_s_per_request) == (LLAMA.host_s, 0)
    assert as_shown(LLAMA, False) is LLAMA and shape(shown) == shape(LLAMA)


def test_a_broken_file_is_named_with_its_field() -> None:
    facts = shipped("llama_3_1_8b", "h100").model_dump(mode="json", exclude_none=True)  # type: ignore[union-attr]
    facts["kernels"][0]["products"]["ms"].pop()
    with pytest.raises(UserError, match=r"broken\.yaml.*products"):
        as_kernels(facts, "broken.yaml")
    with pytest.raises(UserError, match="newer than this version"):
        as_kernels({**facts, "schema_version": 99}, "broken.yaml")
