"""The work of one modelled GPU, step by step: its stages over time, and over its SMs where they divide them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from reports.figures.drawing import legend, sheet
from reports.figures.picture import LeftOut, Picture, at, patch_handle
from reports.figures.style import MUTED, STAGES
from reports.replays.placement import deployment_of, place
from reports.runs.measured import Measured, Run
from reports.tables.labels import setting

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME, TITLE = "gpu_timeline", "One GPU, step by step"
SMS = "sms"
"""Column of the step table, where a system divides a GPU: SMs that the step ran on."""
STEPS = 150
"""Steps of the first engine in the picture: few enough to be distinguished. [chosen]"""
_READS, _DECODES = 1.0, 0.45
"""Opacity of a step that computes prompts, and of one that only decodes."""


def draw(run: Run) -> Picture | LeftOut:
    if run.live:
        return LeftOut(NAME, TITLE, "over sockets the steps of a server are unknown")
    where = at(run, (), c=run.top)
    points = _of_one_seed(run, where)
    tables = {point.variant: _on_busiest_gpu(point) for point in points}
    tables = {variant: table for variant, table in tables.items() if len(table[1])}
    if not tables:
        return LeftOut(NAME, TITLE, "no finished point has a step of a modelled GPU")
    _, first = next(iter(tables.values()))
    shown = first.iloc[len(first) // 2 :][:STEPS]
    begin_s, end_s = float(shown["t_s"].iloc[0]), float((shown["t_s"] + shown["dt_s"]).max())
    stages = list(dict.fromkeys(stage for _, steps in tables.values() for stage in steps["stage"]))
    looks: dict[str, str] = dict(zip(stages, STAGES * len(stages), strict=False))
    deployment = deployment_of(points[0].point)
    sms = deployment.gpu.sms if deployment else 0
    divided = all(SMS in steps and steps[SMS].notna().any() for _, steps in tables.values())
    height_in = 2.2 if divided else 0.7 + 0.35 * len(stages)
    figure, axes = sheet(len(tables), TITLE, height_in, 1, sharex=True, sharey=True)
    for (variant, (gpu, steps)), panel in zip(tables.items(), axes, strict=True):
        within = steps.loc[(steps["t_s"] < end_s) & (steps["t_s"] + steps["dt_s"] > begin_s)]
        if divided:
            _over_sms(panel, within, begin_s, looks, sms or most_at_once(within))
        else:
            _in_lanes(panel, within, begin_s, looks)
        panel.set(title=f"{variant.label}, {gpu}", xlim=(0, end_s - begin_s))
    axes[-1].set_xlabel(f"time since {begin_s:.1f} s, s")
    legend(figure, *_legend(looks if divided else {}), ncols=5)
    high = "its height is the SMs that it used" if divided else "steps of a stage follow one another"
    caption = (
        f"Each bar is one step of the engine; {high}. Shown is the busiest of the GPUs that the most "
        "stages share, from the middle of the first engine's steps on. "
        f"{setting(where)}{', ' if where else ''}seed {points[0].seed}; n = 1."
    )
    return Picture(NAME, TITLE, figure, caption)


def _of_one_seed(run: Run, where: Mapping[str, Any]) -> list[Measured]:
    """A finished point of each variant that has one, of the first seed that any has."""
    points = [point for variant in run.variants for point in run.at(variant, **where) if point.error is None]
    return [point for point in points if point.seed == min(each.seed for each in points)]


def _on_busiest_gpu(point: Measured) -> tuple[str, pd.DataFrame]:
    """The name of the GPU, and the steps there in the order in which they began."""
    steps = point.record.table("steps")
    if len(steps):
        steps = steps.loc[steps["requests"] > 0]
    if not len(steps):
        return "", steps
    deployment = deployment_of(point.point)
    replicas = steps[["stage", "replica"]].drop_duplicates().itertuples(index=False)
    names = {(stage, replica): place(deployment, stage, replica) for stage, replica in replicas}
    gpus = pd.Series([names[key] for key in zip(steps["stage"], steps["replica"], strict=True)], steps.index)
    used = steps.assign(gpu=gpus).groupby("gpu").agg(stages=("stage", "nunique"), busy_s=("dt_s", "sum"))
    gpu = str(used.sort_values(["stages", "busy_s"]).index[-1])
    return gpu, steps.loc[gpus == gpu].sort_values("t_s", kind="stable")


def _in_lanes(panel: Axes, steps: pd.DataFrame, begin_s: float, looks: dict[str, str]) -> None:
    for lane, (stage, colour) in enumerate(reversed(looks.items())):
        of_stage = steps.loc[steps["stage"] == stage]
        spans = list(zip(of_stage["t_s"] - begin_s, of_stage["dt_s"], strict=True))
        panel.broken_barh(spans, (lane - 0.35, 0.7), fc=_shades(of_stage, colour), ec="white", lw=0.3)
    panel.set_yticks(range(len(looks)), list(reversed(looks)))
    panel.set_ylim(-0.6, len(looks) - 0.4)
    panel.grid(axis="y", visible=False)


def _over_sms(panel: Axes, steps: pd.DataFrame, begin_s: float, looks: dict[str, str], full: float) -> None:
    """Draw the last stage from below and the others from above. Where two touch, the GPU is full; where they overlap,
    both were given the same SMs, because a step ended after the next had begun."""
    for stage, colour in looks.items():
        of_stage = steps.loc[steps["stage"] == stage]
        sms = of_stage[SMS].to_numpy(float)
        lows = np.zeros_like(sms) if stage == [*looks][-1] else full - sms
        bars = (of_stage["t_s"] + of_stage["dt_s"] / 2 - begin_s, sms, of_stage["dt_s"], lows)
        panel.bar(*bars, color=_shades(of_stage, colour), ec="white", lw=0.3)
    panel.set(ylim=(0, full), ylabel="SMs")


def most_at_once(steps: pd.DataFrame) -> float:
    """SMs that were in use together at most."""
    begins, ends = steps["t_s"], steps["t_s"] + steps["dt_s"]
    changes = np.concatenate([steps[SMS], -steps[SMS]])
    order = np.lexsort((changes, np.concatenate([begins, ends])))  # an end makes room for a begin
    return float(np.cumsum(changes[order]).max(initial=1.0))


def _shades(steps: pd.DataFrame, colour: str) -> list[tuple[float, float, float, float]]:
    from matplotlib.colors import to_rgba

    return [to_rgba(colour, _READS if prompt else _DECODES) for prompt in steps["prefill_tokens"]]


def _legend(looks: dict[str, str]) -> list[Any]:
    """Return the legend: the pale and the full colours, and the stages that no axis names."""
    return [
        *(patch_handle(color=colour, label=stage) for stage, colour in looks.items()),
        patch_handle(color=MUTED, alpha=_READS, label="computes prompts"),
        patch_handle(color=MUTED, alpha=_DECODES, label="decodes only"),
    ]
