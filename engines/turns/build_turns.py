"""Puts a speaking system together: a deployment's stages behind a gateway for turns, and its components."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from engines.builder import Parts, Serving
from engines.composition import Component, KvManagement, Routing, Scheduler
from engines.core.commands import Arrival, abort_at_layer, all_of, asking
from engines.core.engine import StageEngine
from engines.core.output import StageOutput
from engines.core.policy import Policy, ReactingPolicy
from engines.core.replica import Replica
from engines.core.router import Router
from engines.core.stage import ENTRY, AttentionWindow, Stage
from engines.turns.gateway import Gateway
from engines.turns.library import SpeakingParams
from engines.turns.pipeline import Pipeline


def build(parts: Parts, params: SpeakingParams, chosen: Mapping[str, Any]) -> Serving:
    """Connect every stage's replicas by a pipeline, and attach each component."""
    if params.prefill is not None and params.decode is not None:
        parts.divide(parts.deployment.entry, {"prefill": params.prefill, "decode": params.decode})
    deployment = parts.deployment
    gateway = Gateway(deployment, parts.recorder, parts.transfer, params.system_tokens, parts.params.truncate_prompts)
    pipeline = gateway.pipeline
    engines = {
        deployment.role(name): engines_of(stage, parts, params, chosen, pipeline)
        for name, stage in deployment.stages.items()
    }
    pipeline.connect(engines, routers_of(engines, chosen))
    gateway.audio_encoder = parts.audio_encoder
    for component in chosen.values():
        component.attach(pipeline, parts, component.params)
    return parts.serving(gateway, [engine for each in engines.values() for engine in each])


def engines_of(
    stage: Stage, parts: Parts, params: SpeakingParams, chosen: Mapping[str, Any], pipeline: Pipeline
) -> list[StageEngine]:
    """Return the loops of a stage's replicas, in their order; their products go to the pipeline."""
    role = parts.deployment.role(stage.name)
    stage = _composed(stage, role, params, chosen)
    replicas = [replica for part in stage.roles or (None,) for replica in parts.replicas(stage, part)]
    policies = chosen["scheduler"].policies(role, len(replicas))
    return [
        _engine(replica, role, policy, parts, chosen, pipeline)
        for replica, policy in zip(replicas, policies, strict=True)
    ]


def routers_of(engines: Mapping[str, Sequence[StageEngine]], chosen: Mapping[str, Any]) -> dict[str, Router]:
    """Return the routers to the replicas of entry and talker. The router of a divided entry leads to the prefill
    replicas; the one named `decode` leads to its other replicas."""
    replicas = {role: [engine.replica for engine in members] for role, members in engines.items()}
    rules: dict[str, Routing] = {ENTRY: chosen["routing"], "talker": chosen["talker_routing"]}
    entry = replicas.get(ENTRY, ())
    if entry and entry[0].stage.roles:
        rules["decode"] = chosen["decode_routing"]
        for role, part in ((ENTRY, "prefill"), ("decode", "decode")):
            replicas[role] = [members for members in entry if members.stage.role == part]
    return {role: rule.router(replicas[role]) for role, rule in rules.items() if role in replicas}


def _composed(stage: Stage, role: str, params: SpeakingParams, chosen: Mapping[str, Any]) -> Stage:
    """Return the stage as this composition runs it: without a prefix cache, nothing is stored on the host."""
    scheduler: Scheduler = chosen["scheduler"]
    if role == ENTRY:
        if params.window is not None:
            stage = stage.extended(AttentionWindow(params.window, params.sinks))
        components: Sequence[Component] = [*chosen.values()]
        for component in components:
            stage = component.stage(stage, component.params)
    if not (chosen["kv"].offloads and stage.prefix_caching) or stage.roles:
        stage = replace(stage, host_kv_gb=0.0)
    return stage if stage.modelled else replace(stage, order=scheduler.vllm)


def _engine(
    replica: Replica, role: str, policy: Policy | None, parts: Parts, chosen: Mapping[str, Any], pipeline: Pipeline
) -> StageEngine:
    scheduler: Scheduler = chosen["scheduler"]
    kv: KvManagement = chosen["kv"]
    arrivals: list[Arrival] = [abort_at_layer] if parts.params.abort_at == "layer" else []
    if isinstance(policy, ReactingPolicy):
        arrivals.append(asking(policy))
    output = StageOutput(
        replica,
        parts.recorder,
        pipeline.on_token[role],
        pipeline.on_finish[role],
        pipeline.ready.get(role),
        pipeline.egress.view,
        pipeline.on_prefilled[role] if replica.stage.role == "prefill" else None,
        parts.params.stream_interval,
        None if parts.deployment.speaks else pipeline.batch_listeners,
    )
    manager = kv.manager(role, kv.params) if replica.transfers is not None else None
    return parts.engine(replica, output, policy, manager, all_of(arrivals), scheduler.loop(role, scheduler.params))
