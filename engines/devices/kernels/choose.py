"""Chooses the measured kernels of a stage's step times: the given ones, the shipped ones, or none."""

import json
from functools import cache
from importlib.resources import files
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from engines.core.stage import Stage
from engines.devices.hardware import Gpu
from engines.devices.kernels.grids import Kernels, StageKernels, as_kernels
from engines.devices.kernels.steps import MeasuredSteps, WhatIf
from engines.devices.layer_slots import slots_of
from engines.devices.roofline import Roofline
from engines.models import Decoder

PACKAGE = "engines.devices.kernels"


def shipped_models(gpu: str) -> list[str]:
    stages = _shipped_stages(gpu)
    return sorted(set(stages["model"].to_pylist())) if stages is not None else []


@cache
def shipped(model: str, gpu: str) -> Kernels | None:
    """Return the kernels of a model on a GPU that come with Rehearsal; None without any."""
    stages = _shipped_stages(gpu)
    models = stages["model"].to_pylist() if stages is not None else []
    if stages is None or model not in models:
        return None
    rows = stages.slice(models.index(model), models.count(model)).to_pylist()
    facts = {key: rows[0][key] for key in ("schema_version", "model", "package", "backend", "date")}
    return as_kernels(
        facts | {"gpu": gpu, "kernels": [_stage_facts(row) for row in rows]}, f"the kernels shipped of {model} on {gpu}"
    )


@cache
def _shipped_stages(gpu: str) -> pa.Table | None:
    """Return a row for each stage of each model and the GPUs it is split over; a model's rows follow one another. The
    file's metadata describes the columns (`tools/ship_kernels.py` writes it)."""
    path = files(PACKAGE) / f"{gpu}.parquet"
    if not path.is_file():
        return None
    # No threads: the fork server, which may come here, must have none.
    return pq.ParquetFile(pa.BufferReader(path.read_bytes())).read(use_threads=False)


def _stage_facts(row: dict[str, Any]) -> dict[str, Any]:
    grids = row["grids"]
    sources = ("measured", "estimated", "kernels")
    return {
        "stage": row["stage"],
        "gpus": row["gpus"],
        "decoder": json.loads(row["decoder"]),
        **{grid["name"]: _grid_facts(grid) for grid in grids},
        "sources": {grid["name"]: {key: grid[key] for key in sources} for grid in grids},
        "held_out": {errors.pop("step"): errors for errors in row["held_out"]},
    }


def _grid_facts(grid: dict[str, Any]) -> dict[str, Any]:
    axes = {axis["name"]: axis["at"] for axis in grid["axes"]}
    # Dividing by a power of ten, and not multiplying by its inverse, gives the very float that the decimal is read as.
    ms: list[Any] = [
        float(digits * 10**exponent) if exponent >= 0 else digits / 10**-exponent
        for digits, exponent in zip(grid["digits"], grid["exponent"], strict=True)
    ]
    for at in list(axes.values())[:0:-1]:
        ms = [ms[i : i + len(at)] for i in range(0, len(ms), len(at))]
    return {**axes, "ms": ms}


def fitting(model: str, stage: str, decoder: Decoder, gpu: str, gpus: int) -> tuple[Kernels, StageKernels] | None:
    """Return the shipped kernels of this very decoder: by its model's name, or else of any model with an equal one."""
    for name in dict.fromkeys([model, *shipped_models(gpu)]):
        kernels = shipped(name, gpu)
        for grids in kernels.kernels if kernels is not None else ():
            if grids.gpus == gpus and grids.fits(decoder) and (name != model or grids.stage == stage):
                return kernels, grids  # type: ignore[return-value]
    return None


def steps_of(
    stage: Stage, gpu: Gpu, kernels: StageKernels | None, measured: tuple[Decoder, Gpu] | None = None
) -> MeasuredSteps | None:
    """Return the stage's step times from `kernels`; None without any. `measured`: decoder and GPU as they were
    measured, if the stage's own are scaled."""
    if kernels is None:
        return None
    what_if = None
    if measured is not None:
        what_if = WhatIf(Roofline(*measured, stage.split), Roofline(stage.decoder, gpu, stage.split))
    return MeasuredSteps(stage.decoder, gpu, kernels, what_if, slots_of(stage))
