"""Put a server of interaction sessions together: a deployment's thinker with vLLM's scheduler, and the tick gateway."""

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from pydantic import BaseModel

from engines.calls.params import SessionParams
from engines.calls.sessions import SessionEngine
from engines.calls.ticks import STAGE, Text, TickGateway
from engines.core.recorder import Recorder
from engines.deployment import Deployment
from engines.devices.available import check, check_said
from engines.devices.profile import Profile
from engines.registry import ENGINES
from engines.server import ServerParams, resolve
from engines.speaking.build import Devices, Serving
from engines.speaking.monitor import Monitor
from workloads import questions
from workloads.errors import UserError
from workloads.seeds import stream
from workloads.trace import Trace

if TYPE_CHECKING:
    from engines.devices.audio_encoder import AudioEncoder, Sound

Said = list[tuple[int, int, list[int]]]
"""Session, the frame that it answers, and token ids; in the order in which they were said."""


@dataclass
class FrameServer(Serving):
    """A server of interaction sessions: `gateway` is what clients talk to. `audio_encoder`: of a thinker that hears.
    `said`: what it says, where the workload has a use for that."""

    gateway: TickGateway
    audio_encoder: "AudioEncoder | None" = None
    said: Said | None = None

    def warm_up(self) -> int:
        return super().warm_up() + (self.audio_encoder.warm_up() if self.audio_encoder is not None else 0)

    def close(self) -> dict[str, int]:
        if self.audio_encoder is not None:
            self.audio_encoder.close()
        return super().close()

    def replicas(self, trace: Trace) -> int:
        """Replicas that work for `trace`: all."""
        return len(self.engines)

    def start(self) -> list[asyncio.Task[None]]:
        tasks = [*super().start(), asyncio.create_task(self.gateway.serve(), name="ticks")]
        if self.audio_encoder is not None:
            tasks.append(asyncio.create_task(self.gateway.listen(), name="audio encoder"))
        return tasks

    def counters(self) -> dict[str, int]:
        return {**self.gateway.counters(), **super().counters()}


def frame_period(trace: Trace) -> float:
    """B: seconds of audio in each frame of `trace`. UserError when they differ or there is none."""
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
    trace: Trace | None = None,
    device: str = "virtual",
    profile: Profile | None = None,
    frame_s: float | None = None,
    sound: "Sound | None" = None,
) -> FrameServer:
    """A server of the sessions of `trace` inside a running event loop; on a real device models are loaded here.

    There a thinker with an audio encoder hears what is said; of workload questions it reads the text and its answers
    are kept. Without a trace, frames last `frame_s` seconds, `sound` says what is said, and a session that reaches
    max_model_len ends by itself where nothing else is asked for. UserError when this machine has no such device or too
    little of it, or the trace does not tell what is said.
    """
    assert isinstance(engine_params, SessionParams)
    spec, on_max_len = ENGINES[engine], engine_params.on_max_len
    deployment = thinker_only(resolve(params))
    check(device, deployment)
    if trace is not None:
        frame_s = frame_period(trace)
        check_said(device, deployment, trace)
    else:
        on_max_len = on_max_len or "finish_one"
    assert frame_s is not None, "without a trace somebody has to say how long a frame is"
    devices = Devices(deployment, params, seed, device, profile)
    window, sinks = spec.bound(engine_params)
    stage = replace(deployment.stages[STAGE], window=window, sinks=sinks, host_kv_gb=0.0)
    monitor = Monitor(deployment.model.speech_s_per_text_token)
    audio_encoder, text, said = None, None, None
    engines = []
    for replica in range(len(stage.gpus)):
        parts = devices.replica(stage, replica)
        parts.scheduler.preempts_waiting = spec.preempts_waiting
        if parts.executor is not None and deployment.hears and audio_encoder is None:
            from engines.devices import audio_encoder as hearing

            if trace is not None:
                sound = hearing.sound_of(trace)
            assert sound is not None, "a thinker that hears needs something to hear"
            audio_encoder = hearing.AudioEncoder(parts.executor, sound)
            text = _text(audio_encoder, trace) if trace is not None else None
            said = Said() if text is not None else None
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
                on_max_len,
                said,
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
        audio_encoder,
        text,
    )
    return FrameServer(engines, devices.executors, devices.thread, gateway, audio_encoder, said)


def _text(audio_encoder: "AudioEncoder", trace: Trace) -> Text | None:
    """What the thinker reads around the audio of workload questions; None for another.

    UserError when its tokenizer does not know the chat's marks.
    """
    asked = questions.params_of(trace)
    if asked is None:
        return None
    if len(audio_encoder.read(questions.END)) != 1:
        raise UserError(
            f"workload questions speaks to models with Qwen's chat text, and the tokenizer of this one has no token "
            f"{questions.END}; set checkpoint to the folder of a Qwen3-Omni."
        )
    words = questions.words(asked)
    first, later = (
        (audio_encoder.read(before), audio_encoder.read(after))
        for before, after in (words.first, words.later)
    )
    return Text(first, later, audio_encoder.read(words.end)[0] if words.end else None)
