"""What if a constant of the model were another one: factors on named constants of a deployment (sensitivity).

A name is `stage.constant` for what the model's file says of a stage (`talker.host_s`,
`talker.code_predictor.steps`), `stage.role.step_scale` where the deployment says how long steps of a role take
(`thinker.prefill.step_scale`), `segment_tokens` of the model, an overhead of the deployment (`hop_s`), or a fact of the
accelerator (`bandwidth`). Counts are rounded to whole numbers. Constants that are 0 have no name here, as a
factor changes nothing.
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import fields, replace
from typing import Any, TypeVar

from engines.core.stage import Stage
from engines.deployment import Deployment
from engines.devices.extensions import StatedSteps
from engines.devices.hardware import Gpu
from engines.devices.names import REAL_DEVICES
from engines.models import Decoder
from workloads.errors import UserError, nearest

COUNTS = ("layers", "expert_ffn", "shared_ffn", "ffn")
"""Counts of a decoder that may be scaled: the others must divide each other, or are vocabularies."""

HARDWARE = ("bandwidth", "flops", "pcie_bandwidth")
NVLINK = ("nvlink_bandwidth", "allreduce_s")
"""Of a deployment in which replicas are split over GPUs."""

GREATEST = 1000.0

Facts = TypeVar("Facts", bound=Any)


def parse_scale(text: str) -> dict[str, float]:
    """`talker.host_s=1.25,hop_s=0.75` as {name: factor}, sorted by name. ValueError in words where it is not that."""
    factors: dict[str, float] = {}
    for part in text.split(","):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not (name and equals):
            raise ValueError(f"has the part {part.strip()!r}; write NAME=FACTOR, several with commas between")
        if name in factors:
            raise ValueError(f"names {name} twice; give each constant one factor")
        try:
            factor = float(value)
        except ValueError:
            factor = math.nan
        if not 0 < factor <= GREATEST:
            raise ValueError(
                f"gives {name} the factor {value!r}; write a number above 0 and up to {GREATEST:g}"
            )
        factors[name] = factor
    return dict(sorted(factors.items()))


def write_scale(factors: Mapping[str, float]) -> str:
    """The text that `parse_scale` reads, the same for the same factors."""
    return ",".join(f"{name}={factor!r}" for name, factor in factors.items())


def constants(deployment: Deployment) -> dict[str, float]:
    """Every constant that can be scaled, by name, with its value."""
    named = {
        f"{stage}.{name}": value
        for stage, limits in deployment.stages.items()
        for name, value in _of_decoder(limits.decoder).items()
    }
    named |= {
        f"{name}.{role}.step_scale": stated.scale
        for name, stage in deployment.stages.items()
        for role in stage.of_role
        if (stated := stage.as_role(role).extension(StatedSteps)) is not None
    }
    named |= {field.name: getattr(deployment.overheads, field.name) for field in fields(deployment.overheads)}
    named["segment_tokens"] = deployment.model.segment_tokens
    split = any(stage.split > 1 for stage in deployment.stages.values())
    named |= {name: getattr(deployment.gpu, name) for name in HARDWARE + (NVLINK if split else ())}
    return {name: value for name, value in named.items() if value}


def scaled(deployment: Deployment, factors: Mapping[str, float]) -> Deployment:
    """The deployment with its constants multiplied. UserError for a name that it does not have."""
    known = constants(deployment)
    for name in factors:
        if name not in known:
            raise UserError(
                f"scale names {name!r}, which deployment {deployment.name!r} does not have."
                f"{nearest(name, known)}"
            )
    stages = {name: _scaled_stage(stage, _under(name, factors)) for name, stage in deployment.stages.items()}
    decoders = {name: stage.decoder for name, stage in stages.items()}
    model = _scaled(replace(deployment.model, stages={**deployment.model.stages, **decoders}), factors)
    gpu: Gpu = _scaled(deployment.gpu, factors)
    return replace(
        deployment, model=model, stages=stages, gpu=gpu, overheads=_scaled(deployment.overheads, factors)
    )


def check_scale(text: str, device: str, measured: Collection[str]) -> None:
    """UserError where a factor would change nothing: on a real device, at stages whose step times are `measured`."""
    if device in REAL_DEVICES:
        raise UserError(
            f"scale={text} is for modelled devices; device {device} is as it is: leave scale out."
        )
    for name in parse_scale(text):
        if measured and (name.partition(".")[0] in measured or name in ("bandwidth", "flops")):
            raise UserError(
                f"scale names {name!r}, but a measured profile says how long steps take at stage "
                f"{', '.join(measured)}; scale something else, or a deployment without a profile."
            )


def _of_decoder(decoder: Decoder) -> dict[str, float]:
    own = {
        field.name: getattr(decoder, field.name)
        for field in fields(decoder)
        if field.name in COUNTS or field.type is float
    }
    predictor = decoder.code_predictor
    if predictor is not None:
        of_predictor = {**_of_decoder(predictor), "steps": predictor.steps}
        own |= {f"code_predictor.{name}": value for name, value in of_predictor.items()}
    return own


def _under(prefix: str, factors: Mapping[str, float]) -> dict[str, float]:
    return {
        name.removeprefix(f"{prefix}."): factor
        for name, factor in factors.items()
        if name.startswith(f"{prefix}.")
    }


def _scaled_stage(stage: Stage, factors: Mapping[str, float]) -> Stage:
    for role in stage.of_role:
        if (stated := stage.as_role(role).extension(StatedSteps)) is not None:
            scale = stated.scale * factors.get(f"{role}.step_scale", 1.0)
            stage = stage.with_role(role, replace(stated, scale=scale))
    return replace(stage, decoder=_scaled(stage.decoder, factors))


def _scaled(facts: Facts, factors: Mapping[str, float]) -> Facts:
    """`facts` with those of its fields multiplied that `factors` names."""
    changed: dict[str, Any] = {}
    for field in fields(facts):
        value = getattr(facts, field.name)
        if field.name in factors:
            exact = value * factors[field.name]
            changed[field.name] = max(1, round(exact)) if isinstance(value, int) else exact
        elif isinstance(value, Decoder):
            changed[field.name] = _scaled(value, _under(field.name, factors))
    return replace(facts, **changed) if changed else facts
