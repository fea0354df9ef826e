"""Voice dialogues and viewers of videos on one service: workload `omni_mix`, LiveServe's mixed workload."""

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import Field

from workloads.generators.streamingbench import StreamingBenchParams, streamingbench
from workloads.generators.voice import VoiceParams, voice
from workloads.seeds import child_seed
from workloads.trace import Trace
from workloads.transforms.combine import combined, mixture
from workloads.workload_params import WorkloadParams


class OmniMixParams(StreamingBenchParams):
    """Extends StreamingBenchParams; `sessions` and `rate` are totals of both kinds."""

    sessions: int = Field(64, ge=2, le=1_000_000, description="number of sessions of both kinds together")
    rate: float = Field(
        0.5, ge=1e-6, le=1e6, description="arriving sessions per second of both kinds, Poisson"
    )
    video_share: float = Field(0.5, gt=0, lt=1, description="share of the sessions that watch a video")
    turns: float = Field(3.0, ge=1, le=1000, description="mean turns per voice session, geometric")


Params = TypeVar("Params", bound=WorkloadParams)


def _part(model: type[Params], given: Mapping[str, Any]) -> Params:
    """Return the parameters of one kind of session; missing ones have that kind's defaults."""
    known = {name: value for name, value in given.items() if name in model.model_fields and value is not None}
    return model.model_validate(known)


def omni_mix(params: OmniMixParams, seed: int) -> Trace:
    """Return two independent Poisson processes, one of each kind, with rates by the shares."""
    viewers = min(max(round(params.sessions * params.video_share), 1), params.sessions - 1)
    share = viewers / params.sessions
    given = params.model_dump()
    watched = given | {"sessions": viewers, "rate": params.rate * share}
    spoken = given | {"sessions": params.sessions - viewers, "rate": params.rate * (1 - share)}
    parts = [
        streamingbench(_part(StreamingBenchParams, watched), child_seed(seed, "video")),
        voice(_part(VoiceParams, spoken), child_seed(seed, "voice")),
    ]
    mixed = combined(parts)
    told = f"{viewers} viewers of videos, {params.sessions - viewers} voice sessions"
    return mixture("omni_mix", params, seed, parts, mixed.columns(), [told, *mixed.header.notes])
