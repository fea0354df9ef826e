"""Put a server of interaction sessions together: a deployment's thinker with vLLM's scheduler, and the tick gateway."""

import asyncio
from dataclasses import dataclass, replace

import numpy as np
from pydantic import BaseModel

from engines.build import Devices, Serving
from engines.core.monitor import Monitor
from engines.core.recorder import Recorder
from engines.core.session_params import SessionParams
from engines.core.sessions import SessionEngine
from engines.core.ticks import STAGE, TickGateway
from engines.devices.available import check
from engines.devices.profile import Profile
from engines.registry import ENGINES
from engines.server import Deployment, ServerParams, resolve
from workloads.errors import UserError
from workloads.seeds import stream
from workloads.trace import Trace


@dataclass
class FrameServer(Serving):
    """A server of interaction sessions: ``gateway`` is what clients talk to."""

    gateway: TickGateway

    def replicas(self, trace: Trace) -> int:
        """Replicas that work for ``trace``: all."""
        return len(self.engines)

    def start(self) -> list[asyncio.Task[None]]:
        return [*super().start(), asyncio.create_task(self.gateway.serve(), name="ticks")]

    def counters(self) -> dict[str, int]:
        return {**self.gateway.counters(), **super().counters()}


def frame_period(trace: Trace) -> float:
    """B: seconds of audio in each frame of ``trace``. UserError when they differ or there is none."""
    lengths = np.unique(trace.columns()["audio_s"])
    if len(lengths) != 1 or not np.isfinite(lengths[0]):
        raise UserError(
            f"interaction sessions have frames of one length, and those of this trace are {lengths[:4].tolist()} s "
            "long; set workload=metronome."
        )
    return float(lengths[0])


def thinker_only(deployment: Deployment) -> Deployment:
    """The deployment as sessions are served with it: its thinker."""
    return replace(deployment, stages={STAGE: deployment.stages[STAGE]})


def build_frame_server(
    engine: str,
    engine_params: BaseModel,
    params: ServerParams,
    recorder: Recorder,
    seed: int,
    trace: Trace,
    device: str = "virtual",
    profile: Profile | None = None,
) -> FrameServer:
    """A server of the sessions of ``trace`` inside a running event loop; on a real device models are loaded here.

    UserError when this machine has no such device or too little of it, or when its thinker would really hear: what
    sessions say is fed as token ids.
    """
    assert isinstance(engine_params, SessionParams)
    spec, frame_s = ENGINES[engine], frame_period(trace)
    deployment = thinker_only(resolve(params))
    check(device, deployment)
    devices = Devices(deployment, params, seed, device, profile)
    if devices.real and deployment.hears:
        raise UserError(
            f"deployment {deployment.name!r} hears on device {device}, and interaction sessions are fed as token ids; "
            "take one that does not hear, such as deployment=llama_tiny, or device=virtual."
        )
    window, sinks = spec.bound(engine_params)
    stage = replace(deployment.stages[STAGE], window=window, sinks=sinks, host_kv_gb=0.0)
    monitor = Monitor(deployment.model.speech_s_per_text_token)
    engines = []
    for replica in range(len(stage.gpus)):
        parts = devices.replica(stage, replica)
        parts.scheduler.preempts_waiting = spec.preempts_waiting
        engines.append(
            SessionEngine(
                STAGE,
                replica,
                parts.scheduler,
                parts.device,
                recorder,
                monitor,
                stage.prefix_caching,
                stage.max_model_len,
                engine_params.on_max_len,
            )
        )
    gateway = TickGateway(
        deployment,
        engine_params,
        frame_s,
        engines,
        [stream(seed, "step" if not replica else f"step/{replica}") for replica in range(len(engines))],
        recorder,
        spec.admission(engine_params, frame_s),
        spec.recycles(engine_params),
    )
    return FrameServer(engines, devices.executors, devices.thread, gateway)
