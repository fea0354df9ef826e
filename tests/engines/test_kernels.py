"""Step times from measured kernels."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from engines.core.device import Row
from engines.deployments.export_kernels import settled
from engines.devices.hardware import load_gpu
from engines.devices.host import PROMPT_STEP, as_shown
from engines.devices.kernels.choose import fitting, shipped, shipped_models
from engines.devices.kernels.grids import Kernels, StageKernels, as_kernels, shape
from engines.devices.kernels.steps import MeasuredSteps, gpu_s
from engines.devices.kernels.times import GridTimes, largest_fall
from engines.devices.roofline import Work
from engines.models import load_model
from engines.server import ResolvedServer, ServerParams
from harness.replays.step_times import FITTED, step_sources
from tools import check_kernels, fit_kernels, ship_kernels
from workloads.errors import UserError

SHIPPED = {
    "a100": (22, 60),
    **dict.fromkeys(("b200", "b300", "gb200", "gb300", "h100", "h200", "l40s", "rtx_pro_6000"), (28, 73)),
}
"""GPU -> its models, and their stages by split."""
LLAMA = load_model("llama_3_1_8b").stages["thinker"]


def llama() -> GridTimes:
    return GridTimes(kernels("llama_3_1_8b"))


def file_of(model: str, gpu: str) -> Kernels:
    file = shipped(model, gpu)
    assert file is not None
    return file


def kernels(model: str, gpu: str = "h100", stage: str = "thinker", gpus: int = 1) -> StageKernels:
    found = file_of(model, gpu).of(stage, gpus)
    assert found is not None
    return found


def llama_steps() -> MeasuredSteps:
    return MeasuredSteps(LLAMA, load_gpu("h100"), kernels("llama_3_1_8b"))


def named(**server: Any) -> dict[str, str]:
    """Return the source of each stage's step times."""
    return step_sources(ResolvedServer.of(ServerParams(deployment="qwen3_omni_2gpu", **server)))


def rows(*pairs: tuple[int, int]) -> Work:
    return Work.of([Row("", new, context, True) for new, context in pairs])


@pytest.mark.parametrize("gpu", SHIPPED)
def test_every_grid_fits_its_model_and_names_its_sources(gpu: str) -> None:
    """Errors at points between those of a grid have a median of at most 3 % and a worst of 10 %."""
    files = {model: file_of(model, gpu) for model in shipped_models(gpu)}
    assert (len(files), sum(len(file.kernels) for file in files.values())) == SHIPPED[gpu]
    for model, file in files.items():
        assert (file.model, file.gpu) == (model, gpu)
        for each in file.kernels:
            assert each.fits(load_model(model).stages[each.stage]), (model, each.stage)
            assert set(each.sources) >= {"products", "decodes", "prompts"}
    for model in ("llama_3_1_8b", "qwen3_omni_30b_a3b"):
        for step, error in kernels(model, gpu).held_out.items():
            assert error.median <= 0.03 and error.worst <= 0.10, (model, step)


@pytest.mark.parametrize("gpu", SHIPPED)
def test_shipped_grids_can_be_swept(gpu: str) -> None:
    assert not [f"{each.stage}: {each.sentence}" for each in check_kernels.findings(gpu)]


def test_a_grid_that_falls_is_settled_and_another_is_as_it_was() -> None:
    """Times below 64 tokens are tripled, so time falls at 64. The ratio of 129 to 128 tokens stays."""
    own = kernels("llama_3_1_8b")
    assert settled(own) is own
    line = own.products
    slow = [3 * ms if at < 64 else ms for at, ms in zip(line.at, line.ms, strict=True)]
    stage = settled(own.model_copy(update={"products": line.model_copy(update={"ms": slow})}))
    assert largest_fall(stage) < 1e-3
    i, j = line.at.index(128), line.at.index(129)
    assert stage.products.ms[j] / stage.products.ms[i] == pytest.approx(line.ms[j] / line.ms[i], rel=0.01)


def test_step_times_name_their_source_and_scaled_kernels() -> None:
    """The package measured all-reduces over four GB200, and none over eight."""
    measured = named()
    assert set(measured) == {"thinker", "talker", "vocoder"} and all("h200" in each for each in measured.values())
    assert set(named(step_times="roofline").values()) == {FITTED}
    assert "allreduce" in kernels("llama_3_1_70b", "gb200", gpus=8).scaled
    assert not kernels("llama_3_1_70b", "gb200", gpus=4).scaled
    assert measured["talker"].endswith("; scaled from other sizes, not measured: routed experts")


def test_a_gpu_s_grids_are_written_with_the_same_bytes(tmp_path: Path) -> None:
    """The same bytes each time; another pyarrow writes its own version into them, so tables are compared with ours."""
    found = [file_of(model, "h100") for model in shipped_models("h100")]
    for order in (found, found[::-1]):
        ship_kernels.save("h100", order, tmp_path)
        (tmp_path / "h100.parquet").rename(tmp_path / f"{len(list(tmp_path.iterdir()))}")
    first, second = sorted(tmp_path.iterdir())
    assert first.read_bytes() == second.read_bytes()
    made, ours = pq.read_table(first), pq.read_table(ship_kernels.FOLDER / "h100.parquet")
    assert made.equals(ours, check_metadata=True) and made.schema.metadata[b"gpu"] == b"h100"


def test_times_at_grid_points_are_the_measured_ones() -> None:
    """To the 0.1 us to which times are rounded."""
    own, times = kernels("llama_3_1_8b"), llama()
    assert times.over_tokens(1024) == pytest.approx(own.products.ms[own.products.at.index(1024)], abs=1e-4)
    i, j = own.decodes.requests.index(16), own.decodes.context.index(2048)
    assert times.decodes(16, 2048) == pytest.approx(own.decodes.ms[i][j], abs=1e-3)
    h, i, j = own.prompts.prompts.index(4), own.prompts.new.index(256), own.prompts.before.index(2048)
    assert times.prompts(4, 256, 2048) == pytest.approx(own.prompts.ms[h][i][j], abs=1e-4)


def test_beyond_the_grid_times_grow_as_at_its_end() -> None:
    times = llama()
    twice = times.over_tokens(2 * 32768) / times.over_tokens(32768)
    assert twice == pytest.approx(times.over_tokens(32768) / times.over_tokens(16384), rel=0.01)
    assert times.decodes(1, 1) == times.decodes(1, 16)


def test_prompt_steps_take_longer_than_their_kernels_by_the_share_of_prompt_tokens() -> None:
    steps, times = llama_steps(), llama()
    assert 1e3 * gpu_s(steps, rows(*[(1, 999)] * 8)) == pytest.approx(times.decode_step_ms(8, 1000))
    prompt_ms = 1e3 * LLAMA.layers * steps.kernels_s(rows((640, 0)))
    assert prompt_ms == pytest.approx(times.over_tokens(640) + times.prompts(1, 640, 0))
    for share, work in ((1.0, rows((640, 0))), (0.5, rows((64, 0), *[(1, 700)] * 64))):
        assert steps.layer_s(work) == pytest.approx((1 + share * PROMPT_STEP) * steps.kernels_s(work))


def test_measured_kernels_apply_only_to_a_decoder_of_the_same_sizes() -> None:
    assert fitting("llama_3_1_8b", "thinker", LLAMA, "h100", 1) is not None
    assert fitting("a checkpoint", "thinker", LLAMA, "h100", 1) is not None  # another name, the same sizes
    assert fitting("llama_3_1_8b", "thinker", replace(LLAMA, ffn=LLAMA.ffn + 8), "h100", 1) is None
    assert fitting("llama_3_1_8b", "thinker", LLAMA, "h100", 8) is None
    assert fitting("llama_3_1_8b", "thinker", LLAMA, "a6000", 1) is None
    assert fitting("llama_3_1_8b", "thinker", LLAMA, "l40s", 2) is not None  # all-reduces without NVLink


@pytest.mark.parametrize("gpu", SHIPPED)
@pytest.mark.parametrize("fitted", [True, False], ids=["fitted to", "other models"])
def test_the_fitted_roofline_is_near_the_grids(gpu: str, fitted: bool) -> None:
    """The median error is below 10 %; 15 % on the A100, whose kernels reach more of its peaks."""
    ratios = [
        fit_kernels.whole_steps(on, decoder, kernels)
        for model, on, decoder, kernels in fit_kernels.stages()
        if on == gpu and (model in fit_kernels.FITTED_TO) == fitted
    ]
    assert np.median(np.abs(np.concatenate(ratios) - 1)) < (0.15 if gpu == "a100" else 0.1)


def test_asynchronous_scheduling_hides_the_host_time_of_each_request() -> None:
    shown = as_shown(LLAMA, True)
    assert LLAMA.host_s > 0 and LLAMA.host_s_per_request > 0
    assert (shown.host_s, shown.host_s_per_request) == (LLAMA.host_s, 0)
    assert as_shown(LLAMA, False) is LLAMA and shape(shown) == shape(LLAMA)


def test_the_error_names_a_broken_file_and_its_field() -> None:
    facts = file_of("llama_3_1_8b", "h100").model_dump(mode="json", exclude_none=True)
    facts["kernels"][0]["products"]["ms"].pop()
    with pytest.raises(UserError, match=r"broken\.yaml.*products"):
        as_kernels(facts, "broken.yaml")
    with pytest.raises(UserError, match="newer than this version"):
        as_kernels({**facts, "schema_version": 99}, "broken.yaml")
