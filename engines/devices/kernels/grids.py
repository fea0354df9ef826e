"""Measured kernels of one decoder on one kind of GPU, as grids in a file: the format, its reader and its writer.

All times are in ms, of all layers together, for kernels that run one after the other without a host. A file holds one
model on one GPU; each entry is one stage, split over a number of GPUs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from datetime import date as Date
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml
from pydantic import Field, model_validator

from engines.devices.profile import SCHEMA_VERSION, FilePart, check_version, save_facts
from engines.models import Decoder
from workloads.errors import UserError, validate

MARK = "kernels"
"""The field that distinguishes a file of kernels from a profile of measured steps."""

HEADER = """\
# Made by `rehearse profile --from aiconfigurator`. ms of all layers, without a host. Axes: tokens and samples of a
# step; requests and context (tokens that each sees) of decodes; prompts, their new tokens, and those before them.
"""

LINES = {
    "products": "products",
    "experts": "routed experts",
    "allreduce": "all-reduces",
    "head": "output head",
    "predictor": "code predictor",
}
"""Grids over one axis, and their names in words."""

WORDS = {**LINES, "decodes": "attention of decodes", "prompts": "attention of prompts"}

MOSTLY = 0.5
"""Share of estimated kernels from which a grid counts as scaled, not measured."""

COSTLESS = {
    "audio_encoder",
    "code_predictor",
    "decoder_s_per_frame",
    "encoder_s",
    "encoder_s_per_audio_s",
    "host_s",
    "host_s_per_request",
    "host_s_per_state",
    "vision_encoder",
}
"""Fields of a decoder that do not affect its kernels."""


class HeldOut(FilePart):
    """|grid / measured - 1| at points between the grid's."""

    points: int = Field(gt=0)
    median: float = Field(ge=0)
    worst: float = Field(ge=0)


class Source(FilePart):
    """The source of a grid's times: shares of kernels that were measured in this size or between such sizes, and of
    kernels that the package estimates from the bytes they move; names of the measured kernels."""

    measured: float = Field(ge=0, le=1)
    estimated: float = Field(ge=0, le=1)
    kernels: list[str] = Field(default=[])


class Line(FilePart):
    """ms over one axis."""

    at: list[int]
    ms: list[float]

    @model_validator(mode="after")
    def _fits(self) -> Line:
        if len(self.at) != len(self.ms) or not ascending(self.at):
            raise ValueError("has not one time for each point of an ascending axis")
        return self


class Decodes(FilePart):
    """Attention of decodes: ms by requests (rows) and the tokens that each sees (columns)."""

    requests: list[int]
    context: list[int]
    ms: list[list[float]]

    @model_validator(mode="after")
    def _fits(self) -> Decodes:
        if not (ascending(self.requests) and ascending(self.context) and shaped(self.ms, self.requests, self.context)):
            raise ValueError("ms is not one row per request count with one time per context, both ascending")
        return self


class Prompts(FilePart):
    """Attention of prompts, or of chunks of them: ms by prompts, new tokens of each, and tokens before these."""

    prompts: list[int]
    new: list[int]
    before: list[int]
    ms: list[list[list[float]]]

    @model_validator(mode="after")
    def _fits(self) -> Prompts:
        axes = (self.prompts, self.new, self.before)
        if not all(map(ascending, axes)) or len(self.ms) != len(self.prompts):
            raise ValueError("ms is not nested by prompts, new and before, each ascending")
        if not all(shaped(plane, self.new, self.before) for plane in self.ms):
            raise ValueError("ms is not nested by prompts, new and before, each ascending")
        return self


def ascending(axis: list[int]) -> bool:
    return bool(axis) and all(low < high for low, high in pairwise(axis))


def shaped(table: list[list[float]], rows: list[int], columns: list[int]) -> bool:
    return len(table) == len(rows) and all(len(row) == len(columns) for row in table)


class StageKernels(FilePart):
    """One stage, each of whose replicas is split over `gpus`.

    `products`: matrix products, norms and activations, by tokens of the step. `experts`: routed experts; None without.
    `allreduce`: of all layers; None on one GPU. `head`: the output head, by rows that sample. `predictor`: all steps of
    the code predictor for one frame of each, by rows that sample; None without one.
    """

    stage: str
    gpus: int = Field(gt=0)
    decoder: dict[str, Any]
    products: Line
    experts: Line | None = None
    allreduce: Line | None = None
    head: Line
    predictor: Line | None = None
    decodes: Decodes
    prompts: Prompts
    sources: dict[str, Source]
    held_out: dict[str, HeldOut]

    def fits(self, decoder: Decoder) -> bool:
        return self.decoder == shape(decoder)

    @property
    def scaled(self) -> list[str]:
        """Return the grids that are mostly scaled from kernels of other sizes, not measured."""
        return [name for name, source in self.sources.items() if source.estimated >= MOSTLY]

    @property
    def scaled_note(self) -> str:
        """Return the end of a sentence about the origin: empty if all grids were measured."""
        names = ", ".join(WORDS[name] for name in self.scaled)
        return f"; scaled from other sizes, not measured: {names}" if names else ""


class Kernels(FilePart):
    """A file: one model on one kind of GPU, with the origin of its numbers."""

    schema_version: int = SCHEMA_VERSION
    model: str
    gpu: str
    package: str = Field(description="package and version that holds the measurements")
    backend: str = Field(description="inference engine, and its version, whose kernels were measured")
    date: Date = Field(description="when the grids were made")
    kernels: list[StageKernels] = Field(min_length=1)

    @property
    def origin(self) -> str:
        return f"kernels of {self.backend} measured on {self.gpu} ({self.package})"

    def of(self, stage: str, gpus: int) -> StageKernels | None:
        return next((each for each in self.kernels if (each.stage, each.gpus) == (stage, gpus)), None)


def shape(decoder: Decoder) -> dict[str, Any]:
    """Return the fields of a decoder that affect its kernels, as in a file: without fields at their defaults."""
    values: dict[str, Any] = {}
    for field in fields(decoder):
        value = getattr(decoder, field.name)
        if field.name in COSTLESS or value == field.default:
            continue
        values[field.name] = vars(value) if field.name == "mla" else value
    predictor = decoder.code_predictor
    return values if predictor is None else {**values, "code_predictor": shape(predictor) | {"steps": predictor.steps}}


def as_kernels(facts: dict[str, Any], where: str) -> Kernels:
    """Return the file's content; UserError about the first wrong field. `where` opens the sentence."""
    check_version(facts, where)
    return validate(Kernels, facts, where)


def check_kernels(kernels: Kernels, model: str, gpu: str, splits: Mapping[str, int], where: str) -> None:
    """Raise UserError if they are of another model or GPU, or have no stage of `splits` (its name, GPUs of a
    replica)."""
    wanted = f"make one with `rehearse profile --from aiconfigurator --model {model} --gpu {gpu}"
    if kernels.model != model:
        raise UserError(f"{where} is of model {kernels.model!r}, but this is model {model!r}; {wanted}`.")
    if kernels.gpu != gpu:
        raise UserError(f"{where} is of gpu {kernels.gpu!r}, but this runs on gpu {gpu!r}; {wanted}`.")
    if not any(kernels.of(*split) for split in splits.items()):
        has = ", ".join(f"{entry.stage} on {entry.gpus}" for entry in kernels.kernels)
        needs = ", ".join(f"{stage} on {gpus}" for stage, gpus in splits.items())
        raise UserError(
            f"{where} has the stages {has} GPU, but this runs {needs}; {wanted} --tp {max(splits.values())}`."
        )


def save_kernels(kernels: Kernels, path: Path) -> None:
    """Write them as YAML, whole or not at all. UserError when the folder cannot be written."""
    save_facts(kernels.model_dump(mode="json", exclude_none=True), path, HEADER, dumper=_Dumper)


class _Dumper(yaml.SafeDumper):
    """Writes the numbers of an axis or a row on one line."""

    def represent_sequence(self, tag: str, sequence: Any, flow_style: bool | None = None) -> Any:
        flat = all(not isinstance(item, (dict, list)) for item in sequence)
        return super().represent_sequence(tag, sequence, flow_style=flat)

    def ignore_aliases(self, data: Any) -> bool:
        return True
