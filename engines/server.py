"""The parameters of the server that every engine shares, and the deployment as they make it."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from engines.deployment import Deployment, load_deployment
from engines.models.checkpoint import read_checkpoint
from engines.scaling import parse_scale, scaled, write_scale


def _known(name: str) -> str:
    load_deployment(name)
    return name


def _tidy_scale(text: str) -> str:
    return write_scale(parse_scale(text))


DeploymentName = Annotated[str, AfterValidator(_known)]
"""Name of a deployment that exists."""


class ServerParams(BaseModel):
    """Parameters of the server; the same for every engine that is compared."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    deployment: DeploymentName = Field(
        "qwen3_omni_2gpu", description="which model on which GPUs; see `rehearse list deployments`"
    )
    first_chunk_frames: int = Field(
        4, ge=1, le=25, description="codec frames of the first audio packet (80 ms each)"
    )
    kv_pool_blocks: int | None = Field(
        None,
        ge=64,
        description="KV blocks of 16 tokens per replica of the first stage; default: what the GPU's memory leaves",
    )
    prefix_caching: bool | None = Field(
        None, description="keep KV across turns; default: as the deployment says"
    )
    host_kv_gb: float | None = Field(
        None,
        ge=0,
        description="host memory per replica of the first stage for the KV of engines that offload, GB; 0: none; "
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
        description="folder of a real checkpoint for the first stage (real devices); default: random weights",
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
    lazy_steps: bool = Field(
        True,
        description="ask vLLM only about the rows of a step for which more happens in it than counting up (modelled "
        "devices); results are the same, byte for byte",
    )
    scale: Annotated[str, AfterValidator(_tidy_scale)] | None = Field(
        None,
        description="factors on constants of the modelled device: scale='talker.host_s=1.25,hop_s=0.75', in quotes, as "
        "commas outside of quotes separate runs; names are STAGE.CONSTANT, overheads, bandwidth, flops, pcie_bandwidth",
    )


def resolve(params: ServerParams) -> Deployment:
    """The deployment as it will run: pools sized, and what `params` overrides replaced.

    Only at the stage that requests come to first can history come back, so only it takes `prefix_caching`,
    `kv_pool_blocks`, `host_kv_gb` and `checkpoint`: the prompts of later ones are made anew on every turn.
    """
    deployment = load_deployment(params.deployment)
    if params.scale is not None:
        deployment = scaled(deployment, parse_scale(params.scale))
    model, stages = deployment.model, dict(deployment.stages)
    entry = deployment.entry
    if params.checkpoint is not None:
        decoder = read_checkpoint(params.checkpoint)
        stages[entry] = replace(stages[entry], decoder=decoder, checkpoint=params.checkpoint)
        name = Path(params.checkpoint).resolve().name
        model = replace(model, name=name, stages={**model.stages, entry: decoder})
    if params.block_size is not None:
        stages = {name: replace(stage, block_size=params.block_size) for name, stage in stages.items()}
    if params.prefix_caching is not None:
        stages[entry] = replace(stages[entry], prefix_caching=params.prefix_caching)
    if params.host_kv_gb is not None:
        stages[entry] = replace(stages[entry], host_kv_gb=params.host_kv_gb)
    pools = {entry: params.kv_pool_blocks}
    sized = {name: stage.with_pool(deployment.gpu, pools.get(name)) for name, stage in stages.items()}
    return replace(deployment, model=model, stages=sized)
