"""Changes of a deployment: other GPUs, another model, factors on its constants, shares of a GPU's SMs, the KV pools of
its stages.

`scaled` multiplies named constants (sensitivity). A name is `stage.constant` for a constant of a stage in the model's
file (`talker.host_s`, `talker.code_predictor.steps`), `stage.role.step_scale` if the deployment has a factor on the
steps of a role (`thinker.prefill.step_scale`), `segment_tokens` of the model, an overhead of the deployment (`hop_s`),
or a fact of the accelerator (`bandwidth`). Counts are rounded to whole numbers. Constants that are 0 have no name, as a
factor changes nothing.
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import fields, replace
from typing import Any, TypeVar

from engines.core.stage import Stage
from engines.deployments import Deployment
from engines.deployments.kv_pool import pool_blocks
from engines.devices.extensions import SmShare, StatedSteps
from engines.devices.hardware import Gpu, load_gpu
from engines.models import Decoder, load_model
from workloads.devices import REAL_DEVICES
from workloads.errors import UserError, nearest

COUNTS = ("layers", "expert_ffn", "shared_ffn", "ffn")
"""Counts of a decoder that may be scaled: the others must divide each other, or are vocabularies."""

HARDWARE = ("bandwidth", "flops", "pcie_bandwidth")
NVLINK = ("nvlink_bandwidth", "allreduce_s")
"""Fields of the GPU that matter only if a replica is split over several GPUs."""

GREATEST = 1000.0

Facts = TypeVar("Facts", bound=Any)


def on_gpus(deployment: Deployment, name: str) -> Deployment:
    """Return the deployment on as many GPUs of another kind. UserError if they cannot share a replica."""
    if name == deployment.gpu.name:
        return deployment
    gpu = load_gpu(name)
    for stage in deployment.stages.values():
        if stage.split > 1 and not gpu.nvlink_bandwidth:
            raise UserError(
                f"gpu={name} has no NVLink, and deployment {deployment.name!r} splits its {stage.name} over "
                f"{stage.split} GPUs; set another gpu or deployment."
            )
    return replace(deployment, gpu=gpu, known_error="")


def with_model(deployment: Deployment, name: str, facts: dict[str, Any] | None = None) -> Deployment:
    """Return the deployment with another model of one stage, by name or file (`load_model`), within the deployment's
    limits and its own length. UserError if the deployment has more stages than text needs, or times or inputs that only
    its own model has."""
    model = load_model(name, facts)
    refused = f"model={name} is for deployments of one stage that answers in text, and {deployment.name!r}"
    if len(deployment.stages) != 1:
        raise UserError(f"{refused} has {', '.join(deployment.stages)}; set another deployment.")
    if len(model.stages) != 1:
        raise UserError(
            f"model={name} has the stages {', '.join(model.stages)}, and deployment {deployment.name!r} one; set "
            "another model."
        )
    ((entry, stage),), (decoder,) = deployment.stages.items(), model.stages.values()
    if deployment.model.input_tokens_per_s and not model.input_tokens_per_s:
        raise UserError(f"{refused} hears, which {model.name} does not; set another deployment.")
    if stage.decoder.vision_encoder is not None and decoder.vision_encoder is None:
        raise UserError(f"{refused} sees, which {model.name} does not; set another deployment.")
    if any(variant.extension(StatedSteps) for variant in (stage, *map(stage.as_role, stage.of_role))):
        raise UserError(f"{refused} has step times of its own model; set another deployment.")
    if decoder.heads % stage.split:
        raise UserError(
            f"model={name} has {decoder.heads} heads, which deployment {deployment.name!r} cannot split over its "
            f"{stage.split} GPUs; set another deployment."
        )
    length = min(stage.max_model_len, model.max_model_len or stage.max_model_len)
    return replace(
        deployment,
        model=replace(model, stages={entry: decoder}),
        stages={entry: replace(stage, decoder=decoder, max_model_len=length)},
        known_error="",
    )


def parse_scale(text: str) -> dict[str, float]:
    """Return `talker.host_s=1.25,hop_s=0.75` as {name: factor}, sorted by name. ValueError in words for any other
    text."""
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
            raise ValueError(f"gives {name} the factor {value!r}; write a number above 0 and up to {GREATEST:g}")
        factors[name] = factor
    return dict(sorted(factors.items()))


def write_scale(factors: Mapping[str, float]) -> str:
    """Return the text that `parse_scale` reads, the same for the same factors."""
    return ",".join(f"{name}={factor!r}" for name, factor in factors.items())


def constants(deployment: Deployment) -> dict[str, float]:
    """Return every constant that can be scaled, by name, with its value."""
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
    """Return the deployment with its constants multiplied. UserError for a name that it does not have."""
    names = constants(deployment)
    for name in factors:
        if name not in names:
            raise UserError(
                f"scale names {name!r}, which deployment {deployment.name!r} does not have.{nearest(name, names)}"
            )
    stages = {name: _scaled_stage(stage, _under(name, factors)) for name, stage in deployment.stages.items()}
    decoders = {name: stage.decoder for name, stage in stages.items()}
    model = _scaled(replace(deployment.model, stages={**deployment.model.stages, **decoders}), factors)
    gpu: Gpu = _scaled(deployment.gpu, factors)
    overheads = _scaled(deployment.overheads, factors)
    return replace(deployment, model=model, stages=stages, gpu=gpu, overheads=overheads, known_error="")


def check_scale(text: str, device: str, measured: Collection[str]) -> None:
    """Raise UserError if a factor would change nothing: on a real device, at stages whose step times are `measured`."""
    if device in REAL_DEVICES:
        raise UserError(f"scale={text} is for modelled devices; device {device} is as it is: leave scale out.")
    for name in parse_scale(text):
        if measured and (name.partition(".")[0] in measured or name in ("bandwidth", "flops")):
            raise UserError(
                f"scale names {name!r}, but a measured profile says how long steps take at stage "
                f"{', '.join(measured)}; scale something else, or a deployment without a profile."
            )


def _of_decoder(decoder: Decoder) -> dict[str, float]:
    constants = {
        field.name: getattr(decoder, field.name)
        for field in fields(decoder)
        if field.name in COUNTS or field.type is float
    }
    predictor = decoder.code_predictor
    if predictor is not None:
        of_predictor = {**_of_decoder(predictor), "steps": predictor.steps}
        constants |= {f"code_predictor.{name}": value for name, value in of_predictor.items()}
    return constants


def _under(prefix: str, factors: Mapping[str, float]) -> dict[str, float]:
    return {
        name.removeprefix(f"{prefix}."): factor for name, factor in factors.items() if name.startswith(f"{prefix}.")
    }


def _scaled_stage(stage: Stage, factors: Mapping[str, float]) -> Stage:
    for role in stage.of_role:
        if (stated := stage.as_role(role).extension(StatedSteps)) is not None:
            scale = stated.scale * factors.get(f"{role}.step_scale", 1.0)
            stage = stage.with_role(role, replace(stated, scale=scale))
    return replace(stage, decoder=_scaled(stage.decoder, factors))


def _scaled(facts: Facts, factors: Mapping[str, float]) -> Facts:
    changed: dict[str, Any] = {}
    for field in fields(facts):
        value = getattr(facts, field.name)
        if field.name in factors:
            exact = value * factors[field.name]
            changed[field.name] = max(1, round(exact)) if isinstance(value, int) else exact
        elif isinstance(value, Decoder):
            changed[field.name] = _scaled(value, _under(field.name, factors))
    return replace(facts, **changed) if changed else facts


def parse_shares(text: str) -> dict[str, float]:
    """Return {stage: share}. ValueError in words for any other text."""
    shares = parse_scale(text)
    for stage, share in shares.items():
        if share > 1:
            raise ValueError(f"gives {stage} the share {share:g}; write a number above 0 and up to 1")
    return shares


def with_shares(deployment: Deployment, stages: Mapping[str, Stage], shares: Mapping[str, float]) -> dict[str, Stage]:
    """Return the stages with their shares. UserError for an unknown stage, for a GPU that cannot be divided, and if
    only some stages of a GPU have a share or their shares exceed it."""
    for name in shares:
        if name not in stages:
            raise UserError(
                f"sm_shares names stage {name!r}, which deployment {deployment.name!r} does not have."
                f"{nearest(name, stages)}"
            )
    if not deployment.gpu.sms:
        raise UserError(
            f"sm_shares divides a GPU, and {deployment.gpu.name} has no sms in hardware.yaml; set another gpu."
        )
    for group in sorted(deployment.gpu_groups):
        on_it = [name for name, stage in stages.items() if group in stage.gpus]
        given = [name for name in on_it if name in shares]
        if given and given != on_it:
            missing = ", ".join(name for name in on_it if name not in shares)
            raise UserError(f"sm_shares gives {', '.join(given)} a share, but not {missing} on the same GPU; add it.")
        total = sum(shares[name] for name in given)
        if total > 1 + 1e-9:
            raise UserError(
                f"sm_shares gives {' and '.join(given)} {total:g} of one GPU; let the shares add up to 1 at most."
            )
    return {name: stage.extended(SmShare(shares[name])) if name in shares else stage for name, stage in stages.items()}


def with_pool(stage: Stage, gpu: Gpu, blocks: int | None) -> Stage:
    """Return the stage with a KV pool of `blocks`, by default as the deployment states, or as large as vLLM
    would have it.

    A pool without prefix caching is never larger than its slots can use, and no request may be longer than the pool:
    vLLM would not start.
    """
    if stage.roles and stage.role is None:
        sized = {role: with_pool(stage.as_role(role), gpu, blocks) for role in stage.roles}
        for role, each in sized.items():
            stage = stage.with_role(role, kv_blocks=each.kv_blocks, max_model_len=each.max_model_len)
        length = min(each.max_model_len for each in sized.values())
        return replace(stage, kv_blocks=next(iter(sized.values())).kv_blocks, max_model_len=length)
    blocks = blocks or stage.kv_blocks
    if not blocks:
        blocks = pool_blocks(stage, gpu)
        if not stage.prefix_caching:
            blocks = min(blocks, stage.max_num_seqs * -(-stage.max_model_len // stage.block_size) + 1)
    return replace(stage, kv_blocks=blocks, max_model_len=min(stage.max_model_len, (blocks - 1) * stage.block_size))
