"""Put a speaking system together: a deployment's stages behind a gateway for turns, and what its components attach."""

from collections.abc import Mapping
from typing import Any

from engines.builder import Parts, Serving
from engines.speaking.gateway import Gateway
from engines.speaking.monitor import Monitor
from engines.speaking.params import SpeakingParams
from engines.speaking.pipeline import Pipeline
from engines.speaking.replicas import engines_of, routers_of


def build(parts: Parts, params: SpeakingParams, chosen: Mapping[str, Any]) -> Serving:
    """Every stage with its replicas, connected by a pipeline, to which each component then attaches what it has."""
    if params.prefill is not None and params.decode is not None:
        parts.divide(parts.deployment.entry, {"prefill": params.prefill, "decode": params.decode})
    deployment, server = parts.deployment, parts.params
    monitor = Monitor(deployment.model.speech_s_per_text_token)
    gateway = Gateway(deployment, server.first_chunk_frames, monitor, parts.recorder, params.system_tokens)
    pipeline = gateway.pipeline = Pipeline(deployment, gateway, parts.transfer)
    engines = {
        deployment.role(name): engines_of(stage, parts, params, chosen, pipeline)
        for name, stage in deployment.stages.items()
    }
    pipeline.connect(engines, routers_of(engines, chosen))
    gateway.audio_encoder = parts.audio_encoder
    for component in chosen.values():
        component.attach(pipeline, parts, component.params)
    return parts.serving(gateway, [engine for each in engines.values() for engine in each])
