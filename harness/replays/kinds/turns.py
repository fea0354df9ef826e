"""Turns on systems of ours: they think, hear and speak as the users of a trace do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from pydantic import BaseModel

from engines.deployments import Deployment, deployment_names, load_deployment
from harness.client.client_params import ClientParams
from harness.kinds.turns import Turns, load_of, spoken
from harness.request_tables.steady_window import Load
from workloads.errors import UserError
from workloads.trace import Trace


class ReplayTurns(Turns):
    """The kind of users who wait for replies. Implements `harness.replays.kinds.kind.ReplayKind`."""

    def check(self, params: BaseModel, client: ClientParams, deployment: Deployment, trace: Trace) -> None:
        """Raise UserError unless the system thinks, and hears and speaks as the users of the trace do."""
        if spoken(trace) and not deployment.speaks:
            raise UserError(
                f"deployment {deployment.name!r} cannot speak, but the workload has spoken replies; set reply=text "
                f"where the workload has it, or deployment to one of: {_deployments(lambda d: d.speaks)}."
            )
        if deployment.speech_only and not np.isfinite(trace.columns()["reply_audio_s"]).all():
            raise UserError(
                f"deployment {deployment.name!r} only speaks, but the workload has replies in text; set reply=speech "
                f"where the workload has it, or deployment to one of: {_deployments(lambda d: not d.speech_only)}."
            )
        if (trace.columns()["reference_s"] > 0).any() and not deployment.clones:
            raise UserError(
                f"deployment {deployment.name!r} clones no voice, but the workload has recordings; leave reference_s "
                f"out, or set deployment to one of: {_deployments(lambda d: d.clones)}."
            )
        if (trace.columns()["audio_s"] > 0).any() and not deployment.model.input_tokens_per_s:
            hearing = _deployments(lambda d: d.model.input_tokens_per_s > 0)
            raise UserError(
                f"deployment {deployment.name!r} takes text, but the workload's users speak; set modality=text where "
                f"the workload has it, or deployment to one of: {hearing}."
            )

    def replicas(self, deployment: Deployment, trace: Trace) -> int:
        """Return the replicas of the talker if any reply is spoken, else of the stage that requests come to first."""
        speaks = deployment.speaks and spoken(trace)
        return len(deployment.stages["talker" if speaks else deployment.entry].gpus)

    def timing(self, params: BaseModel, client: ClientParams, deployment: Deployment, trace: Trace) -> Load:
        """Return the load that decides the steady window."""
        replicas = self.replicas(deployment, trace) if client.c_scope == "replica" else 1
        load = load_of(client, replicas)
        return load if deployment.speech_only else replace(load, entry=deployment.entry)


def _deployments(fits: Callable[[Deployment], bool]) -> str:
    return ", ".join(name for name in deployment_names() if fits(load_deployment(name)))


TURNS = ReplayTurns()
