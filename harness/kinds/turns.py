"""Turns: users wait for replies, to which they listen, and which they may interrupt."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Literal

import pandas as pd
from pydantic import BaseModel

from engines.deployments import Deployment, deployment_names, load_deployment
from engines.server import ServerParams, resolve
from harness.client.params import ClientParams
from harness.client.turns import serve_turns
from harness.kinds.turns_live import LiveTurns, spoken
from harness.metrics.classes import of_log, passing
from harness.metrics.jobs import of_jobs
from harness.metrics.live_window import PHASE, WHOLE, Window, counted, phases
from harness.metrics.metric import Metric
from harness.metrics.requests import request_table
from harness.metrics.summary import summarise
from harness.records.log import EventLog
from workloads.errors import UserError
from workloads.trace import Trace


class Turns(LiveTurns):
    """Implements `harness.kinds.kind.OnePass`, and `LiveKind` as what it inherits says."""

    name = "turns"
    one_pass: Literal[True] = True

    def check(self, params: BaseModel, client: ClientParams, server: ServerParams, trace: Trace) -> None:
        """Any turn can be served by who thinks, and hears and speaks as its users do."""
        deployment = resolve(server)
        if spoken(trace) and not deployment.speaks:
            raise UserError(
                f"deployment {deployment.name!r} cannot speak, but the workload has spoken replies; set reply=text "
                f"where the workload has it, or deployment to one of: {_deployments(lambda d: d.speaks)}."
            )
        if (trace.columns()["audio_s"] > 0).any() and not deployment.model.input_tokens_per_s:
            hearing = _deployments(lambda d: d.model.input_tokens_per_s > 0)
            raise UserError(
                f"deployment {deployment.name!r} takes text, but the workload's users speak; set modality=text where "
                f"the workload has it, or deployment to one of: {hearing}."
            )

    def replicas(self, deployment: Deployment, trace: Trace) -> int:
        """Counts the replicas of the talker, where something is spoken, else of the stage that requests come to
        first.
        """
        speaks = deployment.speaks and spoken(trace)
        return len(deployment.stages["talker" if speaks else deployment.entry].gpus)

    async def play(
        self, trace: Trace, server: Any, log: EventLog, params: ClientParams, replicas: int
    ) -> None:
        await serve_turns(trace, server, log, params, replicas)

    def timing(self, params: BaseModel, server: ServerParams, trace: Trace) -> Window:
        """The part of the run that metrics are over: all of it."""
        return replace(WHOLE, entry=resolve(server).entry)

    def measure(
        self,
        trace: Trace,
        turns: pd.DataFrame,
        events: pd.DataFrame | Iterable[pd.DataFrame],
        steps: pd.DataFrame,
        end_s: float,
        timing: Window,
    ) -> tuple[pd.DataFrame, Mapping[str, Metric]]:
        read: list[pd.DataFrame] = []
        requests = request_table(passing(events, turns, read), turns)
        steady, planned = requests, len(turns)
        if not timing.whole:
            requests[PHASE] = phases(requests, timing)
            steady, end_s = counted(requests), timing.end_s
            planned -= len(requests) - len(steady)
        metrics = summarise(
            steady,
            steps,
            end_s,
            planned_turns=planned,
            planned_sessions=turns["session"].to_numpy(),
            entry=timing.entry,
        )
        return requests, metrics | of_log(pd.concat(read), turns, steady) | of_jobs(requests, turns)


def _deployments(fits: Callable[[Deployment], bool]) -> str:
    return ", ".join(name for name in deployment_names() if fits(load_deployment(name)))


TURNS = Turns()
