"""The picture of one GPU: whose steps it shows, and how they share its SMs."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from harness.events.log import STEP_FIELDS
from harness.experiments.point import Point
from harness.records.record import Measurement
from reports.figures.picture import LeftOut, Picture
from reports.figures.style import style
from reports.replays import gpu
from reports.runs.measured import Run, load_run
from tests.reports import served
from tests.reports.written import never, write_run

Step = dict[str, Any]


def step(stage: str, t_s: float, dt_s: float, prompt: int = 0, **more: Any) -> Step:
    own = {"requests": 1, "tokens": max(1, prompt), "prefill_tokens": prompt, "stage": stage, "t_s": t_s, "dt_s": dt_s}
    return {**dict.fromkeys(STEP_FIELDS, 0), **own, **more}


def thinker_alone() -> Iterator[Step]:
    """Busy on GPU 0 all the time; talker and vocoder share GPU 1 and have less to do."""
    for n in range(400):
        yield step("thinker", 0.1 * n, 0.1)
        yield step("talker", 0.1 * n, 0.02, prompt=9 if n % 10 == 0 else 0)
        if n % 4 == 0:
            yield step("vocoder", 0.1 * n + 0.05, 0.01, prompt=4)


def run_of(folder: Path, steps: list[Step], engines: list[str]) -> Run:
    def measure(point: Point) -> Measurement:
        return replace(served.measure(point), steps=pa.Table.from_pylist(steps))

    experiment = served.bench(engines=engines, grid={"c": [8, 16]}, seeds=[0])
    return load_run(write_run(folder, experiment, measure, never))


def drawn(run: Run) -> tuple[Picture, list[Axes]]:
    with style():
        picture = gpu.draw(run)
    assert isinstance(picture, Picture)
    return picture, picture.figure.axes


def test_the_gpu_that_most_stages_share_is_shown_from_the_middle_on(tmp_path: Path):
    picture, axes = drawn(run_of(tmp_path, list(thinker_alone()), ["vllm_omni", "liveserve"]))
    assert [panel.get_title("left") for panel in axes] == ["vllm_omni, GPU 1 (h200)", "liveserve, GPU 1 (h200)"]
    assert [label.get_text() for label in axes[0].get_yticklabels()] == ["vocoder", "talker"]
    vocoder, talker = axes[0].collections
    assert len(talker.get_paths()) + len(vocoder.get_paths()) == pytest.approx(gpu.STEPS, abs=2)
    faces: Any = talker.get_facecolor()
    opaque = {face[3] for face in faces}
    assert opaque == {1.0, 0.45}  # with a prompt, and without
    assert "c\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}16" in picture.caption


def test_stages_that_divide_a_gpu_are_drawn_in_separate_bands_of_its_sms(tmp_path: Path):
    talker_sms, vocoder_sms = 108.0, 24.0  # together the 132 SMs of an H200
    rows = [step("talker", 0.8 * n, 0.8, sms=talker_sms) for n in range(100)]
    rows += [step("vocoder", 0.05 * n, 0.05, sms=vocoder_sms) for n in range(1600)]
    _, (panel,) = drawn(run_of(tmp_path, rows, ["vllm_omni"]))
    assert panel.get_ylabel() == "SMs" and panel.get_ylim() == (0, 132)
    bars = [bar for bar in panel.patches if isinstance(bar, Rectangle)]
    lower, upper = (0.0, vocoder_sms), (vocoder_sms, 132.0)
    assert {(bar.get_y(), bar.get_y() + bar.get_height()) for bar in bars} == {lower, upper}


def test_who_takes_what_others_leave_fills_a_gpu_no_further():
    rows = [step("vision", 0.0, 1.0, sms=84.0), step("decode", 1.0, 1.0, sms=84.0)]
    table = pa.Table.from_pylist(rows).to_pandas()
    assert gpu.most_at_once(table) == 84.0
    assert gpu.most_at_once(table.assign(t_s=np.array([0.0, 0.5]))) == 168.0


def test_a_run_without_steps_has_no_picture(tmp_path: Path):
    found = gpu.draw(load_run(served.serve(tmp_path, served.bench(seeds=[0]))))
    assert isinstance(found, LeftOut) and "no finished point has a step" in found.reason
