"""Frames at an endpoint of ours, the only one that takes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from harness.client.client_params import ClientParams
from harness.events.log import EventLog
from harness.kinds.frames import Frames, check_loop, period_s
from harness.live.endpoints.logs import FailureLog, SendLog
from harness.live.endpoints.target import TargetParams, check_secrets
from harness.request_tables.frame_table import Beat
from workloads.distributions.frame_period import TARGET_SHARE, WAIT_CAP
from workloads.errors import UserError
from workloads.trace import Trace

if TYPE_CHECKING:
    from harness.live.endpoints.dialects.dialect import Dialect
    from harness.live.kinds.kind import LiveServer


class LiveFrames(Frames):
    """The kind of calls without pause. Implements `harness.live.kinds.kind.LiveKind`."""

    def check_target(self, target: TargetParams, trace: Trace, c: int | None) -> None:
        for url in target.addresses:
            check_secrets(url)
        if target.is_http or target.synthesizes or target.dialect not in ("auto", "rehearsal"):
            raise UserError(
                f"workload {trace.header.generator!r} is made of frames, which only dialect rehearsal carries; set "
                "dialect=rehearsal and the url of a server of ours, or use another workload."
            )
        check_loop(c, trace)

    def spoken(self, target: TargetParams, trace: Trace) -> Dialect:
        from harness.live.endpoints.dialects import for_frames

        return for_frames(target)

    def endpoint(
        self, trace: Trace, target: TargetParams, log: EventLog, sends: SendLog, failures: FailureLog
    ) -> LiveServer:
        from harness.live.endpoints.frame_endpoint import FrameEndpoint

        return FrameEndpoint(trace, target, log, sends, failures)

    def floor(self, target: TargetParams) -> str:
        return "frames"

    def first_answer(self, target: TargetParams, trace: Trace) -> str:
        return "latency"

    def target_timing(self, trace: Trace, client: ClientParams, turns: int | None = None) -> Beat:
        """Return the paper's shares of the frame period."""
        budget_s = period_s(trace)
        return Beat(budget_s, WAIT_CAP * budget_s, TARGET_SHARE * budget_s)

    def load(
        self, workload: str, fields: Mapping[str, Any], sessions: int, rate: float | None, duration_s: float
    ) -> tuple[str, dict[str, Any]]:
        if rate is not None:
            raise UserError(f"--rate is not for workload {workload}; set the rate of its calls with --set rate=R.")
        return "sessions", {"duration_s": duration_s}


FRAMES = LiveFrames()
