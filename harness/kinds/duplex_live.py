"""What the harness has to know of calls on an open microphone over real sockets (`harness.kinds.kind.LiveKind`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harness.kinds.turns_live import LiveTurns
from harness.live.target import TargetParams
from harness.records.log import EventLog
from workloads.errors import UserError
from workloads.trace import Trace

if TYPE_CHECKING:
    from harness.client.duplex_user import DuplexServer
    from harness.live.dialects.dialect import Dialect


class LiveDuplex(LiveTurns):
    """Calls as for turns, but for the endpoint."""

    def check_target(self, target: TargetParams, trace: Trace, c: int | None) -> None:
        super().check_target(target, trace, c)
        if target.modalities != "audio":
            raise UserError(
                f"modalities={target.modalities}: the users of workload {trace.header.generator!r} listen; set "
                "modalities=audio."
            )
        if target.batch is not None:
            raise UserError(
                f"no batch goes beside workload {trace.header.generator!r}; leave batch out, or set workload=sharegpt."
            )

    def spoken(self, target: TargetParams, trace: Trace) -> Dialect:
        from harness.live.dialects.spoken import for_open_microphone

        return for_open_microphone(target)

    def endpoint(self, trace: Trace, target: TargetParams, log: EventLog, sends: Any, failures: Any) -> Any:
        from harness.live.client.duplex_endpoint import DuplexEndpoint

        server: DuplexServer = DuplexEndpoint(trace, target, log, sends, failures)
        return server
