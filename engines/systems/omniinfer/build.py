"""Put OmniInfer together: a speaking system, with deferral in front of its prefill replicas where that is asked for."""

from collections.abc import Mapping
from typing import Any

from engines.builder import Parts, Serving
from engines.core.router import ChoosingRouter
from engines.core.stage import ENTRY
from engines.speaking import build as speaking
from engines.systems.omniinfer.library import DividedParams
from engines.systems.omniinfer.proxy.deferral import Deferral


def build(parts: Parts, params: DividedParams, chosen: Mapping[str, Any]) -> Serving:
    """Builds a speaking system and attaches `Deferral` to its pipeline."""
    serving = speaking.build(parts, params, chosen)
    if params.deferred:
        pipeline = serving.gateway.pipeline
        router = pipeline.routers[ENTRY]
        assert isinstance(router, ChoosingRouter), "`Divided.check` refuses others"
        prefill = pipeline.at("prefill")
        pipeline.attach(Deferral(pipeline, router, len(prefill), prefill[0].replica.max_tokens))
    return serving
