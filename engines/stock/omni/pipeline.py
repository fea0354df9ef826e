"""Qwen3-Omni's and Qwen3-TTS's pipelines as vLLM-Omni ships them, with our schedulers at stages that make tokens, and
their deployment on modelled GPUs: the file that `vllm serve --omni --deploy-config` takes."""

# pyright: reportMissingImports=false
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from engines.core.vllm_adapter import engine_arguments
from engines.deployments import Deployment
from engines.stock.arguments import KEY
from engines.stock.omni.omni_params import OmniParams

PREFIX = "rehearsal_"
"""Prefix of our pipelines' names in vLLM-Omni, in front of the names of its own."""
EXECUTOR = "engines.stock.omni.executor.OmniExecutor"
SCHEDULER = "engines.stock.omni.scheduler.AsyncScheduler"
MOST_SESSIONS = 64
"""[chosen] duplex sessions at once; vLLM-Omni's default is one."""
ON_ONE_GPU = ((0.45, 8192), (0.3, 8192), (0.1, 65536))
"""[chosen] share of a real GPU's memory, and longest request, of each stage."""
CONNECTOR = "connector_of_shared_memory"
CHUNKS = ("initial_codec_chunk_frames", "codec_chunk_frames", "codec_left_context_frames")
"""Settings of the connector that both shipped deployments have (vllm_omni 0.30.0, deploy/qwen3_omni_moe.yaml 17-23)."""
LIMITS = ("max_num_seqs", "block_size", "enable_prefix_caching", "max_num_batched_tokens", "max_model_len")


def register() -> None:
    """Register the pipelines with vLLM-Omni, in time for its command line, which reads deployments before it loads
    plug-ins (vllm_omni 0.30.0, engine/omni_engine_base.py 216, engine/arg_utils.py 263)."""
    from vllm_omni.config import register_pipeline
    from vllm_omni.config.stage_config import StageExecutionType
    from vllm_omni.model_executor.models.qwen3_omni.pipeline import QWEN3_OMNI_PIPELINE
    from vllm_omni.model_executor.models.qwen3_tts.pipeline import QWEN3_TTS_PIPELINE

    for pipeline in (QWEN3_OMNI_PIPELINE, QWEN3_TTS_PIPELINE):
        stages = tuple(
            replace(stage, scheduler_cls=SCHEDULER) if stage.execution_type == StageExecutionType.LLM_AR else stage
            for stage in pipeline.stages
        )
        name = PREFIX + pipeline.model_type
        register_pipeline(replace(pipeline, model_type=name, stages=stages), model_type=name)


def deploy(params: OmniParams) -> dict[str, Any]:
    """Return the deployment as vLLM-Omni reads it: one of its own, with its connectors and sampling, and our
    changes."""
    package = find_spec("vllm_omni")
    assert package is not None and package.origin is not None, "the environment of `make omni`"
    served = params.served
    if served.speech_only:
        pipeline, shipped = "qwen3_tts", "qwen3_tts.yaml"
        extra: dict[str, Any] = {"model_runner": "v1"}  # v2 passes the executor by
    else:
        pipeline, shipped = "qwen3_omni_moe", "qwen3_omni_duplex.yaml"
        extra = {"session_mode": "duplex", "duplex_session": {"max_sessions": MOST_SESSIONS}}
    return {
        "base_config": str(Path(package.origin).parent / "deploy" / shipped),
        **extra,
        **({} if params.gpu else {"distributed_executor_backend": EXECUTOR}),
        "active_stream_window": params.active_stream_window,
        "connectors": {CONNECTOR: {"extra": {key: getattr(served.codec, key) for key in CHUNKS}}},
        **({} if params.own_schedule else {"pipeline": PREFIX + pipeline}),
        "stages": [_stage(number, name, params, served) for number, name in enumerate(served.stages)],
    }


def _stage(number: int, name: str, params: OmniParams, served: Deployment) -> dict[str, Any]:
    stage, given = served.stages[name], engine_arguments(served.stages[name])
    limits = {key: given[key] for key in LIMITS}
    if served.role(name) == "vocoder":  # there a chunk has 16 tokens a frame
        del limits["max_num_batched_tokens"], limits["max_model_len"]
    place: dict[str, Any] = {"devices": str(stage.gpus[0][0])}
    if params.gpu:
        limits |= {"max_model_len": ON_ONE_GPU[number][1]}
        place = {"devices": "0", "gpu_memory_utilization": ON_ONE_GPU[number][0]}
    return {
        "stage_id": number,
        **limits,
        "load_format": "dummy",
        "enforce_eager": True,
        **place,
        "additional_config": {KEY: params.stage_params(name).model_dump(exclude_defaults=True)},
    }
