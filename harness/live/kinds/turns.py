"""Turns at an endpoint: users of chat completions, of speech synthesis, and of realtime sockets."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from harness.kinds.turns import Turns, load_of, spoken
from harness.live.endpoints.target import TargetParams, check_secrets
from harness.request_tables.steady_window import Load
from workloads.errors import UserError
from workloads.trace import Trace
from workloads.transforms.shard import check_shards

if TYPE_CHECKING:
    from harness.client.client_params import ClientParams
    from harness.events.log import EventLog
    from harness.live.endpoints.dialects.dialect import Dialect
    from harness.live.endpoints.logs import FailureLog, SendLog
    from harness.live.kinds.kind import LiveServer


RAMP_S = 2.0
"""Time in which the first calls of a closed loop come, s; all at one instant would talk in step. [chosen]"""
FASTEST = 10.0
"""Lowest rate of these calls, 1/s: otherwise a few calls would come late by chance. [chosen]"""
SHORTEST_S = {"sessions": 5.0, "requests": 0.5, "conversations": 0.1}
"""[chosen] Shortest mean time of a closed loop's calls and requests, s, so that there are enough for the duration.
Conversations may have one question."""
SPARE = 1.2
"""An open loop's sessions over those expected within the duration. [chosen]"""


class LiveTurns(Turns):
    """The kind of users who wait for replies. Implements `harness.live.kinds.kind.LiveKind`."""

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
        from harness.live.endpoints.dialects import for_turns
        from harness.live.endpoints.dialects.synthesis import Synthesis

        if target.text_url is not None:
            from harness.live.endpoints.mixed_endpoint import parted

            trace = parted(trace)[0] or trace
        return Synthesis(target) if target.synthesizes else for_turns(target, trace)

    def endpoint(
        self, trace: Trace, target: TargetParams, log: EventLog, sends: SendLog, failures: FailureLog
    ) -> LiveServer:
        from harness.live.endpoints.mixed_endpoint import MixedEndpoint
        from harness.live.endpoints.synthesis_endpoint import SynthesisEndpoint, SynthesisStreamEndpoint
        from harness.live.endpoints.text_endpoint import TextEndpoint
        from harness.live.endpoints.turn_endpoint import TurnEndpoint

        if target.text_url is not None:
            kind = MixedEndpoint
        elif target.synthesizes:
            kind = SynthesisEndpoint if target.is_http else SynthesisStreamEndpoint
        else:
            kind = TextEndpoint if target.is_text else TurnEndpoint
        return kind(trace, target, log, sends, failures)

    def floor(self, target: TargetParams) -> str:
        return "text" if target.is_http else "voice"

    def first_answer(self, target: TargetParams, trace: Trace) -> str:
        return "TTFP" if not target.is_text and spoken(trace) else "TTFT"

    def target_timing(self, trace: Trace, client: ClientParams, turns: int | None = None) -> Load:
        return replace(load_of(client), judged=turns)

    def load(
        self, workload: str, fields: Mapping[str, Any], sessions: int, rate: float | None, duration_s: float
    ) -> tuple[str, dict[str, Any]]:
        fixed: dict[str, Any] = {"stop_after_s": duration_s}
        count = next((name for name in SHORTEST_S if name in fields), None)
        if rate is not None:
            if "rate" not in fields:
                raise UserError(
                    f"--rate is not for workload {workload}, which has its own arrival times; leave it out."
                )
            if count:
                fixed[count] = math.ceil(SPARE * rate * duration_s) + 1
                _check_count(f"--rate {rate:g}", duration_s, fixed[count], fields[count])
            return "rate", fixed
        if "rate" in fields:
            # Requests end sooner than calls, and whoever takes the place of one must have come by then.
            fixed["rate"] = max(sessions / min(RAMP_S, SHORTEST_S.get(count or "", RAMP_S)), FASTEST)
        if count:
            fixed[count] = math.ceil(sessions * (1 + duration_s / SHORTEST_S[count]))
            _check_count(f"{sessions} concurrent calls", duration_s, fixed[count], fields[count])
        return "c", fixed


def _check_count(load: str, duration_s: float, users: int, field: Any) -> None:
    """Raise UserError for more users than the workload takes."""
    most = min((rule.le for rule in field.metadata if getattr(rule, "le", None) is not None), default=math.inf)
    if users > most:
        raise UserError(
            f"{load} for {duration_s:g} s needs {users:,} users, and a run has at most {most:,}; use fewer, or a "
            "shorter --duration."
        )


TURNS = LiveTurns()
