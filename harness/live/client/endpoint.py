"""Which endpoint a live run needs: turns or frames over a WebSocket, or chat completions over HTTP."""

from __future__ import annotations

from harness.live.client.failure_log import FailureLog
from harness.live.client.frame_endpoint import FrameEndpoint
from harness.live.client.send_log import SendLog
from harness.live.client.text_endpoint import TextEndpoint
from harness.live.client.turn_endpoint import TurnEndpoint
from harness.live.target import TargetParams
from harness.log import EventLog
from workloads.registry import serves
from workloads.trace import Trace


def make_endpoint(
    trace: Trace, target: TargetParams, log: EventLog, sends: SendLog, failures: FailureLog
) -> TurnEndpoint | FrameEndpoint | TextEndpoint:
    """The endpoint that `trace` needs at `target`. Make and `prepare` it on the loop that it is to run on."""
    if target.is_text:
        return TextEndpoint(trace, target, log, sends, failures)
    if serves(trace) == "frames":
        return FrameEndpoint(trace, target, log, sends, failures)
    return TurnEndpoint(trace, target, log, sends, failures)
