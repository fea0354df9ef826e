"""Put a speaking system together: a deployment's thinker, talker and vocoder behind a gateway for turns."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rehearsal.engines.composition import Attention, KvManagement, Order, Placement, Routing
from rehearsal.engines.core.commands import abort_at_layer, all_of, asking
from rehearsal.engines.core.engine import StageEngine
from rehearsal.engines.core.output import StageOutput
from rehearsal.engines.core.policy import ReactingPolicy
from rehearsal.engines.core.replica import Replica
from rehearsal.engines.core.router import AssigningRouter
from rehearsal.engines.core.stage import Stage
from rehearsal.engines.parts import Parts
from rehearsal.engines.serving import Serving
from rehearsal.engines.speaking.ahead import PrefillAhead
from rehearsal.engines.speaking.gateway import Gateway
from rehearsal.engines.speaking.monitor import Monitor
from rehearsal.engines.speaking.params import SpeakingParams
from rehearsal.engines.speaking.pipeline import Pipeline
from rehearsal.engines.speaking.reply import ReplyRequest, SpeechView
from rehearsal.workloads.errors import UserError


def build(parts: Parts, params: SpeakingParams, chosen: Mapping[str, Any]) -> Serving:
    """Every stage with its replicas, connected by a pipeline."""
    order: Order = chosen["order"]
    kv: KvManagement = chosen["kv"]
    attention: Attention | None = chosen.get("attention")
    placement: Placement | None = chosen.get("placement")
    if params.prefill is not None and params.decode is not None:
        parts.divide("thinker", {"prefill": params.prefill, "decode": params.decode})
    deployment = parts.deployment
    monitor = Monitor(deployment.model.speech_s_per_text_token)
    gateway = Gateway(
        deployment, parts.params.first_chunk_frames, monitor, parts.recorder, params.system_tokens
    )

    def transfer(source: StageEngine, target: StageEngine, size_bytes: float) -> float:
        return parts.transfer(source.replica, target.replica, size_bytes)

    def view(request: ReplyRequest, now: float) -> SpeechView:
        session, seen = monitor.view(request.session, now), request.seen
        if seen is None or seen.session is not session:
            seen = request.seen = SpeechView(
                request.id,
                request.arrive_s,
                slo=request.slo,
                progress=request.reply.progress,
                session=session,
                silent=request.silent,
            )
        seen.due_s = request.due_s
        return seen

    pipeline = gateway.pipeline = Pipeline(deployment, gateway, transfer)
    aborts = [abort_at_layer] if parts.params.abort_at == "layer" else []
    engines: dict[str, list[StageEngine]] = {}
    replicas: dict[str, list[Replica]] = {}
    for name, described in deployment.stages.items():
        stage = _stage(described, params, kv, order)
        if attention is not None:
            stage = attention.stage(stage, params)
        if placement is not None:
            stage = placement.stage(stage, params)
        replicas[name] = [each for role in stage.roles or (None,) for each in parts.replicas(stage, role)]
        engines[name] = []
        for replica in replicas[name]:
            policy = order.policy(name, params)
            reactions = [asking(policy)] if isinstance(policy, ReactingPolicy) else []
            output = StageOutput(
                replica,
                parts.recorder,
                pipeline.on_token[name],
                pipeline.on_finish[name],
                pipeline.ready.get(name),
                view,
                pipeline.on_prefilled[name] if replica.stage.role == "prefill" else None,
                parts.params.stream_interval,
                None if deployment.speaks else pipeline,
            )
            manager = kv.manager(name, params) if replica.transfers is not None else None
            engines[name].append(
                parts.engine(
                    replica,
                    output,
                    policy,
                    manager,
                    all_of([*aborts, *reactions]),
                    order.loop(name, params),
                )
            )
    together = [each for each in engines["thinker"] if each.replica.stage.lockstep]
    if together:
        stage = together[0].replica.stage
        parts.lockstep(together, placement.experts_s(parts, stage, params) if placement is not None else None)
    rules: dict[str, Routing] = {"thinker": chosen["routing"], "talker": chosen["talker_routing"]}
    routed = dict(replicas)
    if deployment.stages["thinker"].roles:
        rules["decode"] = chosen["decode_routing"]
        for stage, role in (("thinker", "prefill"), ("decode", "decode")):
            routed[stage] = [each for each in replicas["thinker"] if each.stage.role == role]
    routers = {name: rule.router(routed[name], params) for name, rule in rules.items() if name in routed}
    pipeline.connect(engines, routers)
    if isinstance(decode := routers.get("decode"), AssigningRouter):
        pipeline.assign_decodes(decode)
    gateway.audio_encoder = parts.audio_encoder
    if params.prefill_ahead_s:
        gateway.ahead = _ahead(gateway, parts, params.prefill_ahead_s)
    return parts.serving(gateway, [engine for each in engines.values() for engine in each])


def _ahead(gateway: Gateway, parts: Parts, every_s: float) -> PrefillAhead:
    thinker, model = parts.deployment.stages["thinker"], parts.deployment.model
    if parts.audio_encoder is not None:
        raise UserError(
            "prefill_ahead_s is for modelled devices, whose audio encoder takes any piece of a turn; set 0."
        )
    if thinker.roles or not thinker.prefix_caching or not model.input_tokens_per_s:
        raise UserError(
            "prefill_ahead_s needs a thinker that hears, keeps a prefix cache and is not divided; set 0, or "
            "prefix_caching=true and another deployment."
        )
    return PrefillAhead(
        every_s,
        model.input_tokens_per_s,
        thinker.max_model_len,
        gateway.pipeline.thinker,
        gateway.said_so_far,
    )


def _stage(stage: Stage, params: SpeakingParams, kv: KvManagement, order: Order) -> Stage:
    """The stage as this composition runs it: what is not in the prefix cache is not stored on the host."""
    if stage.name == "thinker":
        stage = replace(stage, window=params.window, sinks=params.sinks)
        stage = kv.stage(order.stage(stage, params), params)
    if not (kv.offloads and stage.prefix_caching) or stage.roles:
        stage = replace(stage, host_kv_gb=0.0)
    return stage if stage.modelled else replace(stage, order=order.vllm)
