"""Puts a system for calls together: a deployment's thinker behind a gateway with a regular tick."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from engines.builder import Parts, Serving
from engines.composition import AdmissionControl, Routing, Scheduler
from engines.core.stage import ENTRY, AttentionWindow
from engines.frames.call_params import CallParams
from engines.frames.gateway import Text, TickGateway
from engines.frames.listeners import CallListeners
from engines.frames.session_engine import Answers, SessionEngine
from workloads.errors import UserError
from workloads.generators import questions
from workloads.trace import Trace


def build(parts: Parts, params: CallParams, chosen: Mapping[str, Any]) -> Serving:
    """Connect the replicas of the entry stage, and of no other, to the gateway.

    For workload questions a model that hears reads the text around the audio, and its answers are kept. Without a
    trace, a session that reaches max_model_len ends by itself unless the parameters say otherwise.
    """
    scheduler: Scheduler = chosen["scheduler"]
    admission: AdmissionControl = chosen["admission"]
    routing: Routing = chosen["routing"]
    parts.only(parts.deployment.entry)
    deployment, trace, recorder = parts.deployment, parts.trace, parts.recorder
    frame_s = parts.frame_s if trace is None else frame_period(trace)
    assert frame_s is not None, "without a trace somebody has to say how long a frame is"
    on_max_len = params.on_max_len or ("finish_one" if trace is None else None)
    stage = replace(deployment.stages[deployment.entry], host_kv_gb=0.0)
    if params.window is not None:
        stage = stage.extended(AttentionWindow(params.window, params.sinks))
    replicas = parts.replicas(stage)
    text = answers = listeners = None
    if parts.audio_encoder is not None and trace is not None:
        text = _text(parts.audio_encoder, trace)
        answers = Answers() if text is not None else None
    policies = scheduler.policies(ENTRY, len(replicas))
    if any(policy is not None for policy in policies):
        listeners = CallListeners(deployment.model.speech_s_per_text_token, frame_s)
    engines = []
    for replica, policy in zip(replicas, policies, strict=True):
        replica.scheduler.preempts_waiting = params.preempts_waiting
        engines.append(SessionEngine(replica, recorder, on_max_len, policy, answers, listeners))
    gateway = TickGateway(
        deployment,
        params,
        frame_s,
        engines,
        [parts.stream("step" if not i else f"step/{i}") for i in range(len(engines))],
        recorder,
        routing.router(replicas),
        admission.make(admission.params, frame_s),
        parts.audio_encoder,
        text,
        listeners,
    )
    return parts.serving(gateway, [session_engine.engine for session_engine in engines], answers)


def frame_period(trace: Trace) -> float:
    """B: seconds of audio in each frame of `trace`. UserError when they differ or there is none."""
    lengths = np.unique(trace.columns()["audio_s"])
    if len(lengths) != 1 or not np.isfinite(lengths[0]):
        raise UserError(
            f"interaction sessions have frames of one length, and those of this trace are {lengths[:4].tolist()} s "
            "long; set workload=metronome."
        )
    return float(lengths[0])


def _text(encoder: Any, trace: Trace) -> Text | None:
    """Return the text that the thinker reads around the audio of workload questions; None for another workload.

    UserError when its tokenizer does not know the chat's marks.
    """
    params = questions.params_of(trace)
    if params is None:
        return None
    read = encoder.read
    if len(read(questions.END)) != 1:
        raise UserError(
            f"workload questions speaks to models with Qwen's chat text, and the tokenizer of this one has no token "
            f"{questions.END}; set checkpoint to the folder of a Qwen3-Omni."
        )
    words = questions.words(params)
    first, later = ((read(before), read(after)) for before, after in (words.first, words.later))
    return Text(first, later, read(words.end)[0] if words.end else None)
