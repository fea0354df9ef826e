"""Which endpoint a live run needs, by the kind of its workload."""

from typing import Any

from harness.kinds import kind_of
from harness.live.client.failure_log import FailureLog
from harness.live.client.send_log import SendLog
from harness.live.target import TargetParams
from harness.records.log import EventLog
from workloads.trace import Trace


def make_endpoint(
    trace: Trace, target: TargetParams, log: EventLog, sends: SendLog, failures: FailureLog
) -> Any:
    """The endpoint that `trace` needs at `target`. Make and `prepare` it on the loop that it is to run on."""
    return kind_of(trace).endpoint(trace, target, log, sends, failures)
