from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from harness.events.log import STEP_FIELDS
from harness.experiments.point import Point
from harness.records.record import Measurement
from reports.figures.picture import Picture
from reports.figures.style import style
from reports.replays import gpu
from reports.runs.measured import load_run
from tests.reports import served
from tests.reports.written import never, write_run


def step(stage: str, t_s: float, dt_s: float, **more: Any) -> dict[str, Any]:
    return {**dict.fromkeys(STEP_FIELDS, 0), "requests": 1, "stage": stage, "t_s": t_s, "dt_s": dt_s, **more}


def drawn(folder: Path, steps: list[dict[str, Any]]) -> Axes:
    """The picture of a run with these steps."""

    def measure(point: Point) -> Measurement:
        return replace(served.measure(point), steps=pa.Table.from_pylist(steps))

    experiment = served.bench(engines=["vllm_omni"], grid={"c": [8]}, seeds=[0])
    with style():
        picture = gpu.draw(load_run(write_run(folder, experiment, measure, never)))
    assert isinstance(picture, Picture)
    (axes,) = picture.figure.axes
    return axes


def test_the_gpu_with_the_most_stages_has_a_lane_for_each(tmp_path: Path) -> None:
    """The thinker has GPU 0 for itself and is busy all the time; talker and vocoder share GPU 1."""
    lasts_s = {"thinker": 0.1, "talker": 0.02, "vocoder": 0.01}
    axes = drawn(tmp_path, [step(stage, 0.1 * n, dt_s) for n in range(100) for stage, dt_s in lasts_s.items()])
    assert axes.get_title("left") == "vllm_omni, GPU 1 (h200)"
    assert [label.get_text() for label in axes.get_yticklabels()] == ["vocoder", "talker"]


def test_stages_that_divide_a_gpu_have_separate_bands_of_its_sms(tmp_path: Path) -> None:
    sms = {"talker": 108.0, "vocoder": 24.0}  # together the 132 SMs of an H200
    axes = drawn(tmp_path, [step(stage, 0.1 * n, 0.1, sms=sms[stage]) for n in range(100) for stage in sms])
    bars = [bar for bar in axes.patches if isinstance(bar, Rectangle)]
    assert {(bar.get_y(), bar.get_height()) for bar in bars} == {(0.0, 24.0), (24.0, 108.0)}


@pytest.mark.parametrize(("second_s", "most"), [(0.5, 168.0), (1.0, 84.0)])
def test_steps_use_the_sms_of_both_while_they_overlap(second_s: float, most: float) -> None:
    steps = pd.DataFrame({"t_s": [0.0, second_s], "dt_s": 1.0, "sms": 84.0})
    assert gpu.most_at_once(steps) == most
