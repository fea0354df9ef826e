"""The parameters of the server that every engine shares, and the deployment that results from them."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from engines.core.stage import Stage
from engines.deployments import Deployment, load_deployment
from engines.deployments.changes import (
    check_scale,
    on_gpus,
    parse_scale,
    parse_shares,
    scaled,
    with_model,
    with_pool,
    with_shares,
    write_scale,
)
from engines.devices.extensions import VisionSlots
from engines.devices.hardware import gpu_names, load_gpu
from engines.models import load_model
from engines.models.checkpoint import read_checkpoint
from engines.models.user_file import content, is_file
from workloads.devices import REAL_DEVICES, REPLAYING
from workloads.errors import UserError


def _known(name: str) -> str:
    load_deployment(name)
    return name


def _known_gpu(name: str) -> str:
    load_gpu(name)
    return name


def _release(name: str) -> str:
    if not RELEASE.fullmatch(name):
        raise ValueError("should be a release such as 0.33.0")
    return name


def _tidy_scale(text: str) -> str:
    return write_scale(parse_scale(text))


def _tidy_shares(text: str) -> str:
    return write_scale(parse_shares(text))


DeploymentName = Annotated[str, AfterValidator(_known)]
"""Name of a deployment that exists."""
GpuName = Annotated[str, AfterValidator(_known_gpu)]
"""Name of an accelerator in `hardware.yaml`."""
RELEASE = re.compile(r"\d+\.\d+\.\d+(\.?[a-z]+\d+)*(\+[a-z0-9.]+)?")
"""Name of a release of vLLM, or of a checkout of it: the part after a `+` names the checkout's content."""
NO_GPUS = ("cpu_core", "ascend_910c_die")
"""Accelerators that exist only for their own deployments."""


class ServerParams(BaseModel):
    """Parameters of the server; the same for every engine that is compared."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    deployment: DeploymentName = Field(
        "qwen3_omni_2gpu", description="which model on which GPUs; see `rehearse list deployments`"
    )
    # Stored only if it is set, so that points without it keep their ids.
    gpu: GpuName | None = Field(
        None,
        exclude_if=lambda name: name is None,
        description="what if the modelled deployment ran on as many of another GPU: "
        f"{', '.join(name for name in gpu_names() if name not in NO_GPUS)}; default: the deployment's own",
    )
    model: str | None = Field(
        None,
        exclude_if=lambda name: name is None,
        description="what if the modelled deployment of one stage, which answers in text, served another model: a "
        "name, or a file that `rehearse model config.json` makes; default: the deployment's own",
    )
    model_facts: dict[str, Any] | None = Field(
        None,
        exclude_if=lambda facts: facts is None,
        description="what the file of `model` holds, as records keep it: nothing to set",
    )
    first_chunk_frames: int | None = Field(
        None,
        ge=1,
        le=25,
        description="codec frames of the first audio packet (80 ms each); default: as the deployment says",
    )
    kv_pool_blocks: int | None = Field(
        None,
        ge=64,
        le=10_000_000,
        description="KV blocks of 16 tokens per replica of the first stage; default: what the GPU's memory leaves",
    )
    max_num_batched_tokens: int | None = Field(
        None,
        ge=1,
        le=10_000_000,
        exclude_if=lambda tokens: tokens is None,
        description="tokens of one step of the first stage at most, and so of a chunk of a prompt; default: as the "
        "deployment says",
    )
    vllm: Annotated[str, AfterValidator(_release)] | None = Field(
        None,
        exclude_if=lambda release: release is None,
        description="release of vLLM on whose schedulers it replays, such as 0.33.0 (modelled devices); default: the "
        "installed one",
    )
    prefix_caching: bool | None = Field(None, description="keep KV across turns; default: as the deployment says")
    host_kv_gb: float | None = Field(
        None,
        ge=0,
        le=1_000_000,
        description="host memory per replica of the first stage for the KV of engines that offload, GB; 0: none; "
        "default: as the deployment says",
    )
    talker_history: bool = Field(
        False,
        exclude_if=lambda on: not on,
        description="the talker reads what its session has said and heard before, too, and keeps the KV of that "
        "between turns as the thinker does (LiveServe, section 5: LLM-stage KV is that of thinker and talker); off: "
        "its prompt is made anew of all the user's turns, as by vLLM-Omni",
    )
    talker_pool_blocks: int | None = Field(
        None,
        ge=64,
        le=10_000_000,
        exclude_if=lambda blocks: blocks is None,
        description="KV blocks of 16 tokens per replica of the talker; default: what the GPU's memory leaves",
    )
    truncate_prompts: bool = Field(
        False,
        exclude_if=lambda on: not on,
        description="cut a prompt that does not fit max_model_len with its reply, to its last tokens, as clients ask "
        "vLLM with truncate_prompt_tokens; off: refused, as by vLLM's API server (HTTP 400), and the turn fails",
    )
    charge_eviction: bool = Field(
        False,
        description="add the measured seconds of choosing blocks to evict to the step, in virtual time; the record "
        "then differs from run to run",
    )
    block_size: int | None = Field(
        None, ge=1, le=65_536, description="tokens per KV block; default: as the deployment says"
    )
    checkpoint: str | None = Field(
        None, description="folder of a real checkpoint for the first stage (real devices); default: random weights"
    )
    abort_at: Literal["step", "layer"] = Field(
        "step", description="a barge-in leaves the running step at its end (stock vLLM) or at its next layer"
    )
    step_noise_cv: float | None = Field(
        None,
        ge=0,
        le=0.5,
        description="coefficient of variation of a step's time; default: 0.007 by kernels, as real ones have it; 0.03 "
        "by a roofline; 0 with a profile of measured steps",
    )
    step_stall_chance: float = Field(
        0.0,
        ge=0,
        le=0.1,
        exclude_if=lambda share: not share,
        description="share of a modelled device's steps before which its host stalls",
    )
    step_stall_s: float = Field(
        0.2,
        gt=0,
        le=10,
        exclude_if=lambda seconds: seconds == 0.2,
        description="seconds that the host stalls, whatever the step computes: [chosen]",
    )
    decode_fast_path: bool = Field(
        True,
        description="decodes that only write one more token into a block of theirs bypass vLLM's scheduler (modelled "
        "devices); results are the same, byte for byte",
    )
    stream_interval: int = Field(
        1,
        ge=1,
        le=1_000_000,
        exclude_if=lambda tokens: tokens == 1,
        description="tokens of a text reply that go to the client in one message, but for its first and its last "
        "(vLLM's --stream-interval)",
    )
    vision_slots: int | None = Field(
        None,
        ge=1,
        le=10_000,
        exclude_if=lambda slots: slots is None,
        description="layers of the vision encoder that are on a modelled GPU at once, while the others wait in host "
        "memory (Nova, section III-E); default: as the deployment says, which is all where they fit",
    )
    sm_shares: Annotated[str, AfterValidator(_tidy_shares)] | None = Field(
        None,
        exclude_if=lambda text: text is None,
        description="shares of a modelled GPU's SMs for stages that then run at once on it: "
        "sm_shares='talker=0.8,vocoder=0.2', in quotes; default: steps of one GPU run one after the other",
    )
    step_times: Literal["measured", "roofline"] = Field(
        "measured",
        exclude_if=lambda source: source == "measured",
        description="how long modelled steps take: by kernels that were measured on such a GPU, where the model's are "
        "known, or by a roofline of its data sheet",
    )
    runtime: Literal["rehearsal", "vllm-omni"] = Field(
        "rehearsal",
        exclude_if=lambda name: name == "rehearsal",
        description="whose pipeline serves on device sockets: ours, or vLLM-Omni's own in processes of its own "
        "(`make omni`)",
    )
    slower: float = Field(
        1.0,
        gt=0,
        le=1e6,
        exclude_if=lambda factor: factor == 1.0,
        description="real seconds in a second of a server on modelled devices and of the users of device sockets, for "
        "a machine that is too slow to keep up; results are in their seconds",
    )
    active_stream_window: int = Field(
        0,
        ge=0,
        le=1_000_000,
        exclude_if=lambda replies: not replies,
        description="runtime vllm-omni, its own: replies that the talker speaks at once, first come first; 0: all",
    )
    scale: Annotated[str, AfterValidator(_tidy_scale)] | None = Field(
        None,
        description="factors on constants of the modelled device: scale='talker.host_s=1.25,hop_s=0.75', in quotes, as "
        "commas outside of quotes separate runs; names are STAGE.CONSTANT, overheads, bandwidth, flops, pcie_bandwidth",
    )

    @model_validator(mode="before")
    @classmethod
    def _read_model(cls, given: Any) -> Any:
        """Read a file once: a point keeps the content of that moment."""
        name = given.get("model") if isinstance(given, dict) else None
        if not isinstance(name, str) or not is_file(name) or given.get("model_facts") is not None:
            return given
        return {**given, "model_facts": content(name)}

    @model_validator(mode="after")
    def _check_model(self) -> "ServerParams":
        if self.model is not None:
            load_model(self.model, self.model_facts)
        if self.model_facts is not None and not (self.model and is_file(self.model)):
            raise UserError("model_facts is what a record keeps of a model's file; set model to a file instead.")
        return self

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> "ServerParams":
        """Pick the server's parameters out of `stored`, the parameters of a point; other names are ignored."""
        return ServerParams.model_validate({n: v for n, v in stored.items() if n in ServerParams.model_fields})


@dataclass(frozen=True)
class ResolvedServer:
    """The parameters of a server, and the resulting deployment. `unscaled`: the deployment without their `scale`, which
    identifies measured steps."""

    params: ServerParams
    deployment: Deployment
    unscaled: Deployment

    @classmethod
    def of(cls, params: ServerParams) -> "ResolvedServer":
        """Resolve the parameters; a point names its first packet. UserError for parameters that no deployment has."""
        deployment = resolve(params)
        params = params.model_copy(update=stated_defaults(deployment))
        without = params.model_copy(update={"scale": None})
        return cls(params, deployment, deployment if params.scale is None else resolve(without))


def stated_defaults(deployment: Deployment) -> dict[str, int]:
    """Return the parameters whose default the deployment states."""
    return {"first_chunk_frames": deployment.codec.initial_codec_chunk_frames}


def resolve(params: ServerParams) -> Deployment:
    """Return the deployment as it will run: with sized pools and the values that `params` overrides. UserError where no
    memory is left for a pool."""
    deployment, pools = _overridden(params)
    sized = {name: with_pool(stage, deployment.gpu, pools.get(name)) for name, stage in deployment.stages.items()}
    full = next((stage for stage in sized.values() if stage.kv_blocks <= 0 and not stage.modelled), None)
    if full is not None:
        raise UserError(
            f"deployment {deployment.name!r} leaves no memory for KV at stage {full.name} on gpu "
            f"{deployment.gpu.name}: the weights alone take {full.decoder.weight_bytes / 1e9:.0f} GB; set another gpu "
            "or deployment."
        )
    return replace(deployment, stages=sized)


def shortened(params: ServerParams) -> dict[str, tuple[int, int, int]]:
    """Return the stages whose pools lower max_model_len, as a user of vLLM must: blocks, the length, and that asked."""
    asked, served = _overridden(params)[0].stages, resolve(params).stages
    lengths = {name: (each.kv_blocks, each.max_model_len, asked[name].max_model_len) for name, each in served.items()}
    return {name: each for name, each in lengths.items() if each[1] < each[2]}


def _overridden(params: ServerParams) -> tuple[Deployment, dict[str, int | None]]:
    """Return the deployment with the values that `params` overrides, before its pools are sized, and the blocks of
    these that it states.

    History can return only at the entry stage, so only that stage takes `prefix_caching`, `kv_pool_blocks`,
    `host_kv_gb` and `checkpoint`: the prompts of later ones are made anew on every turn. The exception is a talker with
    `talker_history`, which has as much host memory as the first stage. `max_num_batched_tokens` is of the entry stage,
    too.
    """
    deployment = load_deployment(params.deployment)
    if params.gpu is not None:
        deployment = on_gpus(deployment, params.gpu)
    if params.model is not None:
        if params.checkpoint is not None:
            raise UserError("model and checkpoint are both set, and one of them runs; leave one out.")
        deployment = with_model(deployment, params.model, params.model_facts)
    if params.scale is not None:
        deployment = scaled(deployment, parse_scale(params.scale))
    if params.first_chunk_frames is not None:
        codec = replace(deployment.codec, initial_codec_chunk_frames=params.first_chunk_frames)
        deployment = replace(deployment, codec=codec)
    model, stages = deployment.model, dict(deployment.stages)
    entry = deployment.entry
    if params.checkpoint is not None:
        decoder = read_checkpoint(params.checkpoint)
        stages[entry] = replace(stages[entry], decoder=decoder, checkpoint=params.checkpoint)
        name = Path(params.checkpoint).resolve().name
        model = replace(model, name=name, stages={**model.stages, entry: decoder})
    if params.block_size is not None:
        stages = {name: replace(stage, block_size=params.block_size) for name, stage in stages.items()}
    if params.max_num_batched_tokens is not None:
        stages[entry] = replace(stages[entry], max_num_batched_tokens=params.max_num_batched_tokens)
        _check_budget(stages[entry])
    if params.prefix_caching is not None:
        stages[entry] = replace(stages[entry], prefix_caching=params.prefix_caching)
    if params.vision_slots is not None:
        stages[entry] = _with_slots(deployment, stages[entry], params.vision_slots)
    if params.host_kv_gb is not None:
        stages[entry] = replace(stages[entry], host_kv_gb=params.host_kv_gb)
    if params.sm_shares is not None:
        stages = with_shares(deployment, stages, parse_shares(params.sm_shares))
    pools = {"talker": params.talker_pool_blocks}
    if params.kv_pool_blocks is not None:
        pools[entry] = params.kv_pool_blocks
    if params.talker_history:
        stages["talker"] = _with_history(deployment, stages["talker"] if deployment.speaks else None, stages[entry])
    return replace(deployment, model=model, stages=stages), pools


def _with_history(deployment: Deployment, talker: Stage | None, entry: Stage) -> Stage:
    """Return the talker with its history. UserError if no talker reads on from turn to turn."""
    if talker is None or deployment.model.segment_tokens or deployment.speech_only:
        piece = "segment" if deployment.model.segment_tokens else "text"
        why = "has no talker" if talker is None else f"has one that speaks each {piece} by itself"
        raise UserError(f"talker_history=true, and deployment {deployment.name!r} {why}; leave it out.")
    return replace(talker, prefix_caching=True, host_kv_gb=entry.host_kv_gb)


def _with_slots(deployment: Deployment, stage: Stage, slots: int) -> Stage:
    """Return the stage with slots. UserError if nothing could come and go."""
    encoder = stage.decoder.vision_encoder
    if encoder is None:
        raise UserError(
            f"vision_slots={slots} is for weights of a vision encoder, and {deployment.name!r} has none; leave it out."
        )
    if slots >= encoder.layers:
        raise UserError(
            f"vision_slots={slots} is no fewer than the {encoder.layers} layers of the vision encoder; set less."
        )
    return stage.extended(VisionSlots(slots))


def _check_budget(stage: Stage) -> None:
    """Raise UserError if vLLM would not start, or a step could not fill a block."""
    least = max(stage.max_num_seqs, stage.block_size)
    if stage.max_num_batched_tokens < least:
        why = (
            f"the {least} requests that stage {stage.name} may run at once (max_num_seqs); each needs one token"
            if least == stage.max_num_seqs
            else f"the {least} tokens of a KV block of stage {stage.name}"
        )
        raise UserError(
            f"max_num_batched_tokens={stage.max_num_batched_tokens} is less than {why}; set {least} or more."
        )


def check_runtime(params: ServerParams, device: str) -> None:
    """Raise UserError if a parameter or the device does not go together with `runtime`."""
    runtime_only, stated = {"active_stream_window"}, stated_defaults(load_deployment(params.deployment))
    set_here = {
        name
        for name, field in ServerParams.model_fields.items()
        if getattr(params, name) not in (field.get_default(), stated.get(name))
        and name not in ("runtime", "deployment")
    }
    if params.slower != 1.0 and device != "sockets":
        raise UserError(f"slower={params.slower:g} is for a clock on the wall; leave slower out on device {device}.")
    if params.runtime == "rehearsal":
        for name in sorted(set_here & runtime_only):
            raise UserError(f"{name} is of runtime vllm-omni; add runtime=vllm-omni, or leave it out.")
        return
    if device != "sockets":
        raise UserError(
            f"runtime=vllm-omni is a server with clocks and sockets of its own, which no {device} time drives; give "
            "--device sockets."
        )
    for name in sorted(set_here - runtime_only - {"slower"}):
        raise UserError(f"{name}={getattr(params, name)} is not for runtime=vllm-omni; leave it out.")


def check_modelled(params: ServerParams, device: str, measured: Collection[str]) -> None:
    """Raise UserError if another constant, GPU or model would change nothing: on a real device, at stages whose step
    times are `measured`."""
    if params.scale is not None:
        check_scale(params.scale, device, measured)
    if params.sm_shares is not None and (device in REAL_DEVICES or measured):
        why = f"device {device} has no such shares" if device in REAL_DEVICES else "its step times were measured"
        raise UserError(f"sm_shares={params.sm_shares} is for modelled GPUs, and {why}; leave sm_shares out.")
    if params.vllm is not None and device not in REPLAYING:
        raise UserError(
            f"vllm={params.vllm} is for replays in virtual time (device {' or '.join(REPLAYING)}), and device {device} "
            "needs all of the vLLM that is installed; leave vllm out."
        )
    if params.step_stall_chance and device in REAL_DEVICES:
        raise UserError(
            f"step_stall_chance={params.step_stall_chance:g} is for modelled GPUs; leave step_stall_chance out on "
            f"device {device}."
        )
    if params.step_stall_s != type(params).model_fields["step_stall_s"].default and not params.step_stall_chance:
        raise UserError(
            f"step_stall_s={params.step_stall_s:g} is for steps before which the host stalls, and it never does; set "
            "step_stall_chance too."
        )
    if params.slower != 1.0 and device in REAL_DEVICES:
        raise UserError(f"slower={params.slower:g} is for modelled GPUs; leave slower out on device {device}.")
    for name, value in {"gpu": params.gpu, "model": params.model}.items():
        if value is not None and (device in REAL_DEVICES or measured):
            why = (
                f"device {device} is as it is" if device in REAL_DEVICES else "its step times were measured on another"
            )
            raise UserError(f"{name}={value} is for modelled GPUs, and {why}; leave {name} out.")
