"""Duplex at an endpoint: the server hears when turns end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.events.log import EventLog
from harness.kinds.duplex import Duplex
from harness.live.endpoints.logs import FailureLog, SendLog
from harness.live.endpoints.target import TargetParams
from harness.live.kinds.turns import TURNS
from workloads.errors import UserError
from workloads.trace import Trace

if TYPE_CHECKING:
    from harness.live.endpoints.dialects.dialect import Dialect
    from harness.live.kinds.kind import LiveServer


class LiveDuplex(Duplex):
    """The kind of open microphones. Implements `harness.live.kinds.kind.LiveKind`."""

    floor, first_answer, target_timing, load = (TURNS.floor, TURNS.first_answer, TURNS.target_timing, TURNS.load)

    def check_target(self, target: TargetParams, trace: Trace, c: int | None) -> None:
        TURNS.check_target(target, trace, c)
        if target.modalities != "audio":
            raise UserError(
                f"modalities={target.modalities}: the users of workload {trace.header.generator!r} listen; set "
                "modalities=audio."
            )

    def spoken(self, target: TargetParams, trace: Trace) -> Dialect:
        from harness.live.endpoints.dialects import for_open_microphone

        return for_open_microphone(target)

    def endpoint(
        self, trace: Trace, target: TargetParams, log: EventLog, sends: SendLog, failures: FailureLog
    ) -> LiveServer:
        from harness.live.endpoints.duplex_endpoint import DuplexEndpoint

        return DuplexEndpoint(trace, target, log, sends, failures)


DUPLEX = LiveDuplex()
