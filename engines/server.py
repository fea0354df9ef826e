"""What is served on what: deployments as data, and the parameters of the server that every engine shares."""

from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Literal

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from engines.devices.hardware import Gpu, load_gpu
from engines.models import Decoder, Model, load_model, values
from engines.models.checkpoint import read_checkpoint
from engines.scaling import parse_scale, scaled, write_scale
from workloads.errors import UserError, nearest

ACTIVATION_RESERVE_BYTES = 4e9
"""Device memory kept for activations and graphs beside weights and KV; vLLM profiles this, we assume it."""


@dataclass(frozen=True)
class Stage:
    """One stage of a deployment: its decoder, the GPUs of its replicas and vLLM's limits.

    ``gpus``: for each replica the indices of the GPUs that it is split over. ``max_tokens``: the longest output of one
    reply; ``max_model_len``: prompt and output of one request together; ``kv_blocks``: the KV pool of one replica, the
    null block included. ``block_size``: tokens per KV block, 16 as in the papers;
    vLLM's CPU attention wants a multiple of 32. ``host_kv_gb``: host memory of one replica (GB) to which engines that
    offload copy its KV; 0: none. ``checkpoint``: folder with real weights; None: random ones. ``window``: tokens behind
    the newest, itself included, whose KV stays in the pool; None: all. ``sinks``: first tokens whose KV stays as well.
    """

    name: str
    decoder: Decoder
    gpus: tuple[tuple[int, ...], ...]
    memory_share: float
    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int
    max_tokens: int
    prefix_caching: bool
    block_size: int = 16
    kv_blocks: int = 0
    host_kv_gb: float = 0.0
    checkpoint: str | None = None
    window: int | None = None
    sinks: int = 0

    @property
    def reach(self) -> int | None:
        """Tokens of its context that a token sees at most; None: all."""
        return None if self.window is None else self.window + self.sinks

    @property
    def split(self) -> int:
        """GPUs of one replica, between which its weights and KV are divided (tensor parallelism)."""
        return len(self.gpus[0])

    @property
    def block_bytes(self) -> int:
        """Bytes of K and V of one block over all layers."""
        return self.block_size * self.decoder.kv_bytes_per_token

    @property
    def real_bytes(self) -> int:
        """Bytes of weights and KV pool of one replica."""
        return self.decoder.weight_bytes + self.kv_blocks * self.block_bytes

    def with_pool(self, gpu: Gpu, blocks: int | None) -> "Stage":
        """The stage with a KV pool of ``blocks``, by default as the deployment says, or what the GPU's memory leaves
        after the weights.

        A pool without prefix caching is never larger than its seats can use, and no request may be longer than the
        pool: vLLM would not start.
        """
        blocks = blocks or self.kv_blocks
        if not blocks:
            each_bytes = gpu.memory_bytes * self.memory_share - ACTIVATION_RESERVE_BYTES
            free_bytes = self.split * each_bytes - self.decoder.weight_bytes
            blocks = int(free_bytes // self.block_bytes)
            if not self.prefix_caching:
                blocks = min(blocks, self.max_num_seqs * -(-self.max_model_len // self.block_size) + 1)
        return replace(
            self, kv_blocks=blocks, max_model_len=min(self.max_model_len, (blocks - 1) * self.block_size)
        )


@dataclass(frozen=True)
class Overheads:
    """Seconds outside the GPUs. ``preprocess_s``: from the end of the user's turn to a request. ``hop_s``: between
    stages. ``orchestrator_s``: per message through the orchestrator, one after the other."""

    preprocess_s: float
    hop_s: float
    orchestrator_s: float


@dataclass(frozen=True)
class Deployment:
    """A model's stages on GPUs."""

    name: str
    title: str
    model: Model
    gpu: Gpu
    stages: dict[str, Stage]
    overheads: Overheads

    @property
    def speaks(self) -> bool:
        """Whether replies can be spoken."""
        return "talker" in self.stages

    @property
    def hears(self) -> bool:
        """Whether the thinker takes sound itself on a real device; else, and on a modelled one, sound is counted."""
        return self.stages["thinker"].decoder.ears is not None

    @property
    def gpu_groups(self) -> set[tuple[int, ...]]:
        """The GPUs that step together: those of a replica. Stages may share a group, never a part of one."""
        return {group for stage in self.stages.values() for group in stage.gpus}


def deployment_names() -> list[str]:
    folder = files("engines.deployments")
    return sorted(path.name.removesuffix(".yaml") for path in folder.iterdir() if path.name.endswith(".yaml"))


@cache
def load_deployment(name: str) -> Deployment:
    """Read ``engines/deployments/<name>.yaml``. Raises UserError when there is no such deployment."""
    if name not in deployment_names():
        raise UserError(f"unknown deployment '{name}'.{nearest(name, deployment_names())}")
    facts = yaml.safe_load((files("engines.deployments") / f"{name}.yaml").read_text())
    model = load_model(facts["model"])
    deployment = Deployment(
        name=name,
        title=facts["title"],
        model=model,
        gpu=load_gpu(facts["gpu"]),
        stages={
            stage: Stage(
                name=stage, decoder=model.stages[stage], **{**limits, "gpus": _groups(limits["gpus"])}
            )
            for stage, limits in facts["stages"].items()
        },
        overheads=Overheads(**values(facts["overheads"])),
    )
    used = sorted(gpu for group in deployment.gpu_groups for gpu in group)
    if used != sorted(set(used)):
        raise ValueError(f"deployment {name}: two replicas share a part of their GPUs")
    return deployment


def _groups(gpus: list[int | list[int]]) -> tuple[tuple[int, ...], ...]:
    """One group a replica; a plain number is a group of one."""
    return tuple((group,) if isinstance(group, int) else tuple(group) for group in gpus)


def _known(name: str) -> str:
    if name not in deployment_names():
        raise ValueError(f"unknown deployment '{name}'.{nearest(name, deployment_names())}".rstrip("."))
    return name


def _tidy_scale(text: str) -> str:
    return write_scale(parse_scale(text))


DeploymentName = Annotated[str, AfterValidator(_known)]
"""Name of a deployment that exists."""


class ServerParams(BaseModel):
    """Parameters of the server; the same for every engine that is compared."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    deployment: DeploymentName = Field(
        "qwen3_omni_2gpu", description="which model on which GPUs; see `rehearse list engines`"
    )
    first_chunk_frames: int = Field(
        4, ge=1, le=25, description="codec frames of the first audio packet (80 ms each)"
    )
    kv_pool_blocks: int | None = Field(
        None,
        ge=64,
        description="KV blocks of 16 tokens per thinker replica; default: what the GPU's memory leaves",
    )
    prefix_caching: bool | None = Field(
        None, description="keep KV across turns; default: as the deployment says"
    )
    host_kv_gb: float | None = Field(
        None,
        ge=0,
        description="host memory per thinker replica for the KV of engines that offload, GB; 0: they do not; "
        "default: as the deployment says",
    )
    charge_eviction: bool = Field(
        False,
        description="add the measured seconds of choosing blocks to evict to the step, in virtual time; the record "
        "then differs from run to run",
    )
    block_size: int | None = Field(
        None, ge=1, description="tokens per KV block; default: as the deployment says"
    )
    checkpoint: str | None = Field(
        None,
        description="folder of a real checkpoint for the thinker (real devices); default: random weights",
    )
    abort_at: Literal["step", "layer"] = Field(
        "step", description="a barge-in leaves the running step at its end (stock vLLM) or at its next layer"
    )
    step_noise_cv: float | None = Field(
        None,
        ge=0,
        le=0.5,
        description="coefficient of variation of a step's time; default: 0.03, with a measured profile 0",
    )
    scale: Annotated[str, AfterValidator(_tidy_scale)] | None = Field(
        None,
        description="factors on constants of the modelled device: scale='talker.host_s=1.25,hop_s=0.75', in quotes, as "
        "commas outside of quotes separate runs; names are STAGE.CONSTANT, overheads, bandwidth, flops, pcie_bandwidth",
    )


def resolve(params: ServerParams) -> Deployment:
    """The deployment as it will run: pools sized, and what ``params`` overrides replaced.

    Only the thinker's history can come back, so only it takes ``prefix_caching``, ``kv_pool_blocks`` and
    ``host_kv_gb``: the talker's prompt is rebuilt on every turn, the vocoder keeps nothing.
    """
    deployment = load_deployment(params.deployment)
    if params.scale is not None:
        deployment = scaled(deployment, parse_scale(params.scale))
    model, stages = deployment.model, dict(deployment.stages)
    if params.checkpoint is not None:
        thinker = read_checkpoint(params.checkpoint)
        stages["thinker"] = replace(stages["thinker"], decoder=thinker, checkpoint=params.checkpoint)
        name = Path(params.checkpoint).resolve().name
        model = replace(model, name=name, stages={**model.stages, "thinker": thinker})
    if params.block_size is not None:
        stages = {name: replace(stage, block_size=params.block_size) for name, stage in stages.items()}
    if params.prefix_caching is not None:
        stages["thinker"] = replace(stages["thinker"], prefix_caching=params.prefix_caching)
    if params.host_kv_gb is not None:
        stages["thinker"] = replace(stages["thinker"], host_kv_gb=params.host_kv_gb)
    pools = {"thinker": params.kv_pool_blocks}
    sized = {name: stage.with_pool(deployment.gpu, pools.get(name)) for name, stage in stages.items()}
    return replace(deployment, model=model, stages=sized)
