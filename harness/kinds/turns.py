"""Turns: users wait for replies, to which they listen, and which they may interrupt."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd
from pydantic import BaseModel

from engines.deployments import Deployment, deployment_names, load_deployment
from harness.client.client_params import ClientParams
from harness.client.turns import serve_turns
from harness.endpoints.target import TargetParams, check_secrets
from harness.events.log import EventLog
from harness.metrics.classes import of_log
from harness.metrics.jobs import of_jobs
from harness.metrics.metric import Metric
from harness.metrics.turns import summarise
from harness.request_tables.live_window import PHASE, WHOLE, Window, counted, phases, steady_window
from harness.request_tables.request_table import ABORTED, BARGED_IN, COMPLETED, request_table, typed
from workloads.columns.jobs import starts
from workloads.errors import UserError
from workloads.trace import Trace
from workloads.transforms.shard import check_shards

if TYPE_CHECKING:
    from harness.client.session import Server
    from harness.endpoints.dialects.dialect import Dialect


RAMP_S = 2.0
"""Time in which the first calls of a closed loop come, s; all at one instant would talk in step. [chosen]"""
FASTEST = 10.0
"""Lowest rate of these calls, 1/s: otherwise a few calls would come late by chance. [chosen]"""
SHORTEST_S = {"sessions": 5.0, "requests": 0.5}
"""[chosen] Shortest mean time of a closed loop's calls and requests, s, so that there are enough for the duration."""
SPARE = 1.2
"""An open loop's sessions over those expected within the duration. [chosen]"""


class LiveTurns:
    """The live kind of a workload whose users wait for replies."""

    def check_target(self, target: TargetParams, trace: Trace, c: int | None) -> None:
        for url in target.addresses:
            check_secrets(url)
        check_shards(trace, target.shards)
        if target.is_text and "audio" in set(trace.columns()["modality"]):
            raise UserError(
                f"{target.url} takes text, and the users of workload {trace.header.generator!r} speak; set "
                "workload=sharegpt or another of text, or give the ws:// url of a realtime endpoint."
            )
        if target.synthesizes and not spoken(trace):
            raise UserError(
                f"{target.url} makes speech, and the replies of workload {trace.header.generator!r} are read; set "
                "workload=speech or voice, or give the url of chat completions."
            )

    def spoken(self, target: TargetParams, trace: Trace) -> Dialect:
        from harness.endpoints.dialects import for_turns
        from harness.endpoints.dialects.synthesis import Synthesis

        if target.text_url is not None:
            from harness.endpoints.mixed_endpoint import parted

            trace = parted(trace)[0] or trace
        return Synthesis(target) if target.synthesizes else for_turns(target, trace)

    def endpoint(self, trace: Trace, target: TargetParams, log: EventLog, sends: Any, failures: Any) -> Any:
        from harness.endpoints.mixed_endpoint import MixedEndpoint
        from harness.endpoints.synthesis_endpoint import SynthesisEndpoint, SynthesisStreamEndpoint
        from harness.endpoints.text_endpoint import TextEndpoint
        from harness.endpoints.turn_endpoint import TurnEndpoint

        if target.text_url is not None:
            kind = MixedEndpoint
        elif target.synthesizes:
            kind = SynthesisEndpoint if target.is_http else SynthesisStreamEndpoint
        else:
            kind = TextEndpoint if target.is_text else TurnEndpoint
        server: Server = kind(trace, target, log, sends, failures)
        return server

    def floor(self, target: TargetParams) -> str:
        return "text" if target.is_http else "voice"

    def first_answer(self, target: TargetParams, trace: Trace) -> str:
        return "TTFP" if not target.is_text and spoken(trace) else "TTFT"

    def target_timing(
        self,
        trace: Trace,
        client: ClientParams,
        events: pd.DataFrame,
        end_s: float,
        turns: int | None = None,
    ) -> Window:
        columns = trace.columns()
        users = columns["session"][starts(columns)]  # of a job its main agent
        if len(users) < len(trace.sessions):
            events = events.loc[np.isin(events["session"], users)]
        return steady_window(
            events,
            end_s,
            c=client.c,
            c_counts=client.c_counts,
            stop_after_s=client.stop_after_s,
            sessions=len(users),
            turns=turns,
        )

    def turn_rows(self, requests: pd.DataFrame) -> pd.DataFrame:
        return requests

    def answered(self, requests: pd.DataFrame) -> np.ndarray:
        return np.isin(requests["status"], [COMPLETED, BARGED_IN, ABORTED])

    def serve_settings(self, trace: Trace) -> dict[str, Any]:
        return {}

    def load(
        self,
        workload: str,
        known: Mapping[str, Any],
        sessions: int,
        rate: float | None,
        duration_s: float,
    ) -> tuple[str, dict[str, Any]]:
        fixed: dict[str, Any] = {"stop_after_s": duration_s}
        count = next((name for name in SHORTEST_S if name in known), None)
        if rate is not None:
            if "rate" not in known:
                raise UserError(
                    f"--rate is not for workload {workload}, which has its own arrival times; leave it out."
                )
            if count:
                fixed[count] = math.ceil(SPARE * rate * duration_s) + 1
                _check_count(f"--rate {rate:g}", duration_s, fixed[count], known[count])
            return "rate", fixed
        if "rate" in known:
            # Requests end sooner than calls, and whoever takes the place of one must have come by then.
            fixed["rate"] = max(sessions / min(RAMP_S, SHORTEST_S.get(count or "", RAMP_S)), FASTEST)
        if count:
            fixed[count] = math.ceil(sessions * (1 + duration_s / SHORTEST_S[count]))
            _check_count(f"{sessions} concurrent calls", duration_s, fixed[count], known[count])
        return "c", fixed


def _check_count(load: str, duration_s: float, users: int, field: Any) -> None:
    """Raise UserError for more users than the workload takes."""
    most = min(
        (rule.le for rule in field.metadata if getattr(rule, "le", None) is not None), default=math.inf
    )
    if users > most:
        raise UserError(
            f"{load} for {duration_s:g} s needs {users:,} users, and a run has at most {most:,}; use fewer, or a "
            "shorter --duration."
        )


def spoken(trace: Trace) -> bool:
    """Return whether any reply is spoken."""
    return bool(np.isfinite(trace.columns()["reply_audio_s"]).any())


class Turns(LiveTurns):
    """The kind of users who wait for replies. Implements `harness.kinds.kind.OnePass`, and `LiveKind` through its
    base."""

    name = "turns"
    Timing = Window
    one_pass: Literal[True] = True

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

    async def play(
        self, trace: Trace, server: Any, log: EventLog, params: ClientParams, replicas: int
    ) -> None:
        await serve_turns(trace, server, log, params, replicas)

    def timing(self, params: BaseModel, deployment: Deployment, trace: Trace) -> Window:
        """Return the part of the run that metrics are over: all of it."""
        return WHOLE if deployment.speech_only else replace(WHOLE, entry=deployment.entry)

    def requests(
        self, turns: pd.DataFrame, events: pd.DataFrame | Iterable[pd.DataFrame], timing: Window
    ) -> pd.DataFrame:
        requests = request_table(events, turns)
        if not timing.whole:
            requests[PHASE] = phases(requests, timing)
        return requests

    def metrics(
        self,
        turns: pd.DataFrame,
        events: pd.DataFrame | Iterable[pd.DataFrame],
        steps: pd.DataFrame,
        requests: pd.DataFrame,
        end_s: float,
        timing: Window,
    ) -> Mapping[str, Metric]:
        requests = typed(requests)
        steady = counted(requests)
        metrics = summarise(
            steady,
            steps,
            end_s if timing.whole else timing.end_s,
            planned_turns=len(turns) - (len(requests) - len(steady)),
            planned_sessions=turns["session"].to_numpy(),
            entry=timing.entry,
        )
        return metrics | of_log(events, turns, steady) | of_jobs(requests, turns)


def _deployments(fits: Callable[[Deployment], bool]) -> str:
    return ", ".join(name for name in deployment_names() if fits(load_deployment(name)))


TURNS = Turns()
