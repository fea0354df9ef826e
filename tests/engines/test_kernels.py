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
from engines.devices.hardware import load_gpu
from engines.devices.host import ASYNC_SHARE, PROMPT_STEP, as_shown
from engines.devices.kernels.choose import fitting, shipped, shipped_models
from engines.devices.kernels.grids import as_kernels, shape
from engines.devices.kernels.steps import FittedSteps, MeasuredSteps, gpu_s
from engines.devices.kernels.times import GridTimes
from engines.devices.roofline import Roofline, Work
from engines.models import load_model
from engines.server import ServerParams
from harness.records.step_times import FITTED, step_sources
from tools import fit_kernels, ship_kernels
from workloads.errors import UserError

SHIPPED = {
    "a100": (22, 60, "0edc55c1e4a5ea34f1358a9e4ac495579b5983621de6ecd74d5db4681670e9ba"),
    "b200": (24, 63, "bd835e2df920f84638db449cc61dcbd2a7690f679b3c966202d2e3bd264098b5"),
    "b300": (24, 63, "f87da6b10ff0a13babb1df777377272c2dc86e2a13ab59331f8ec0e8f3a2ddef"),
    "gb200": (24, 63, "afa02840ced696576fdd3aa7e195c9237c62c2f9c46c0cd9a03475399d70468c"),
    "gb300": (24, 63, "0c56ab179d859fb88d89d5d438d8a83209e772b1da138106dbaaaf3d534ae13f"),
    "h100": (24, 63, "d2923cf2d5dda78f24a071b9cf6edf0e745671c796521699be0effe4e497f518"),
    "h200": (24, 63, "64f8c27c4b91a0531ac60bbc569fed2b83243a67b54a49e47bd813db0dc8685e"),
    "l40s": (24, 63, "da59f6dbfa70b911c8390eea9a93a81f9d3133e7a9af049e922844573be68541"),
    "rtx_pro_6000": (24, 63, "fd053f73b9c026919d1d569affb3fd94ccd7d6f7b2a0e7e268ba4302ca7d974c"),
}
"""GPU -> its models, their stages by split, and SHA-256 over all of their kernels as JSON, which has floats to the last
bit. Taken from the YAML files that were here before; new measurements change them."""
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


def test_values_of_one_grid_read_by_eye() -> None:
    file, own = shipped("llama_3_1_8b", "h100"), kernels("llama_3_1_8b")
    assert (
        file is not None
        and file.origin == "kernels of vLLM 0.24.0 measured on h100 (aiconfigurator-core 0.12.0)"
    )
    assert (file.date.isoformat(), [each.gpus for each in file.kernels]) == ("2026-11-24", [1, 2, 4])
    assert own.decoder == {
        "layers": 32,
        "hidden": 4096,
        "heads": 32,
        "kv_heads": 8,
        "head_dim": 128,
        "vocab": 128256,
        "ffn": 14336,
    }
    assert (own.products.at[:4], own.products.ms[:4]) == ([1, 2, 3, 4], [5.374, 5.578, 5.64, 5.723])
    assert (own.head.at[-1], own.head.ms[-1]) == (1024, 1.383)
    assert (own.decodes.requests[-1], own.decodes.context[-2:]) == (512, [65536, 131072])
    assert own.decodes.ms[-1][-2:] == [1400.0, 2807.0]
    assert (own.prompts.prompts[0], own.prompts.new[5], own.prompts.before[1]) == (1, 256, 128)
    assert own.prompts.ms[0][5] == [0.988, 0.9849, 0.9267, 1.14, 2.264, 7.182, 27.42]
    assert own.experts is own.allreduce is own.predictor is None
    assert list(own.sources) == ["products", "head", "decodes", "prompts"]


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
    assert 1e3 * steps.layer_s(rows((640, 0))) * LLAMA.layers == pytest.approx(PROMPT_STEP * layers)


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
    measured = step_sources(ServerParams(deployment="qwen3_omni_2gpu"))
    assert set(measured) == {"thinker", "talker", "vocoder"} and all(
        "h200" in each for each in measured.values()
    )
    back = step_sources(ServerParams(deployment="qwen3_omni_2gpu", step_times="roofline"))
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
    lone, plain = (
        steps.kernels_s(rows((1, 1000))),
        Roofline(decoder, load_gpu("h200")).layer_s(rows((1, 1000))),
    )
    assert lone > plain  # launches, which a lone request of a mixture of experts waits for
    assert steps.kernels_s(rows((1, 100_000))) > lone


def test_planning_ahead_hides_most_of_the_host() -> None:
    shown = as_shown(LLAMA, True)
    assert shown.host_s_per_request == pytest.approx(ASYNC_SHARE * LLAMA.host_s_per_request)
    assert as_shown(LLAMA, False) is LLAMA and shape(shown) == shape(LLAMA)


def test_a_broken_file_is_named_with_its_field() -> None:
    facts = shipped("llama_3_1_8b", "h100").model_dump(mode="json", exclude_none=True)  # type: ignore[union-attr]
    facts["kernels"][0]["products"]["ms"].pop()
    with pytest.raises(UserError, match=r"broken\.yaml.*products"):
        as_kernels(facts, "broken.yaml")
    with pytest.raises(UserError, match="newer than this version"):
        as_kernels({**facts, "schema_version": 99}, "broken.yaml")
