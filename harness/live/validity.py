"""Validity of a live run.

INVALID: what was measured is the doing of a machine. More than 5 % of the sends were late, the load generator died, or
the load was never the planned one. Failed: the server's own doing. Most of its turns failed, so the median user waited
for ever, whatever those waited who were answered.
"""

import re
from collections import Counter
from pathlib import Path

import numpy as np

from harness.live.endpoints.target import TargetParams
from harness.live.kinds.kind import LiveKind
from harness.live.run.plan import Merged
from harness.records.record import InvalidPoint, Measurement
from harness.request_tables.request_table import UNFINISHED
from harness.request_tables.steady_window import DRAIN, PHASE, Load

MOST_LATE = 0.05
"""Share of the sends that may be later than `send_delay_limit_ms`. [chosen]"""
_SHED, _LATE = "sessions turned away", "no answer in time"
_HINTS = (
    (r"http (404|405|501)$", "there are no chat completions at the url; correct its path, often /v1"),
    (r"http (401|403)$", "put the right token into the environment variable that token_env names"),
    (r"http 4..$", "the server does not take what is asked; see its log, and set model where it has several"),
    (r"connect", "see whether the server still runs"),
    (
        r"timeout: no (session\.(created|updated)|bot-ready|setupComplete)|garbage|serves|closed|cut short",
        "name what it speaks with --dialect, or see the server's log",
    ),
    (_SHED, "take fewer sessions, or let the server take more"),
    (r"", "see the server's log"),
)
"""Pattern of the reason of a failure, and its likely remedy; the first pattern that matches counts."""


class FailedPoint(RuntimeError):
    """A point whose server failed most requests. `measurement`: the values measured all the same."""

    def __init__(self, reason: str, measurement: Measurement) -> None:
        super().__init__(reason)
        self.measurement = measurement


def check_machines(measurement: Measurement, merged: Merged, target: TargetParams) -> None:
    """Raise InvalidPoint when a machine, not the server, determined the result."""
    reason = _why_invalid(merged, target)
    if reason is not None:
        raise InvalidPoint(reason, measurement)


def check_server(kind: LiveKind, measurement: Measurement) -> None:
    """Raise FailedPoint when the server failed most turns, apart from rejected ones, or answered nothing at all."""
    requests = measurement.requests
    turns = kind.turn_rows(requests) is not None
    if PHASE in requests:  # turns that the end of the run cut off failed nobody
        cut = (requests[PHASE] == DRAIN) & (requests["status"] == UNFINISHED)
        requests = requests.loc[~cut.to_numpy()]
    there = kind.answered(requests)
    answered = int(there.sum())
    assert not isinstance(measurement.events, Path), "a live run keeps its log in memory"
    events, failures = measurement.events.to_pandas(), measurement.more["failures"].to_pandas()
    shed = set(events.loc[(events["kind"] == "shed").to_numpy(), "session"])
    reasons = dict(zip(failures["session"], failures["reason"], strict=True))
    lost = requests["session"].to_numpy()[~there]
    why = Counter(_SHED if session in shed else reasons.get(session, _LATE) for session in lost)
    broken = why.total() - why[_SHED]
    if not why or (answered and (broken <= answered or not turns)):
        return
    if answered:
        del why[_SHED]
    ((reason, count),) = why.most_common(1)
    n, what = len(requests), "turns" if turns else "frames"
    summary = f"{broken} of {n} {what} failed" if answered else f"all {n} {what} failed"
    most = "" if count == why.total() else f"{count} of them: "
    hint = next(hint for begin, hint in _HINTS if re.match(begin, reason))
    raise FailedPoint(f"{summary} ({most}{reason.replace('http ', 'HTTP status ')}); {hint}", measurement)


def check_window(measurement: Measurement) -> None:
    """Raise InvalidPoint when no turn was asked under the planned load of a closed loop."""
    load, turns = measurement.facts.timing, len(measurement.trace.columns()["session"])
    if not isinstance(load, Load) or load.slots is None or turns <= load.slots:
        return
    if measurement.metrics["steady_begin"]["value"] is None:
        raise InvalidPoint(
            f"no turn was asked in the steady window, which begins when {load.slots} requests have ended and "
            "ends when no new turn may begin; give a longer --duration",
            measurement,
        )


def _why_invalid(merged: Merged, target: TargetParams) -> str | None:
    if merged.lost:
        losses = "; ".join(
            f"load generator {index} of {len(merged.shards)} {loss.reason} at {loss.t_s:.1f} s"
            for index, loss in sorted(merged.lost.items())
        )
        return f"{losses}: {len(merged.lost_sessions)} open sessions were lost, and count as failed"
    late = late_share(merged, target)
    if late > MOST_LATE:
        return (
            f"{100 * late:.1f} % of the sends were later than send_delay_limit_ms={target.send_delay_limit_ms:g} "
            "allows: the load generator was late, not the server; give it more --shards, a quieter machine or fewer "
            "sessions"
        )
    return None


def check_own_server(measurement: Measurement, limit_ms: float) -> None:
    """Raise InvalidPoint when the event loop of our own server lagged more than `limit_ms`, where nothing is judged:
    its machine, and not its engine, was slow."""
    lag_s = measurement.metrics["server_lag_p99"]["value"]
    if lag_s is not None and 1e3 * lag_s > limit_ms:
        raise InvalidPoint(
            f"the P99 of the server's own loop lag is {1e3 * lag_s:.1f} ms, above send_delay_limit_ms={limit_ms:g}: "
            "its machine starved the server, its engine was not slow; give it a core of its own, a quieter machine "
            "or fewer sessions",
            measurement,
        )


def late_share(merged: Merged, target: TargetParams) -> float:
    """Return the share of the sends that were later than `send_delay_limit_ms` allows; 0 of none."""
    delays_s = merged.sends["send_delay_s"].to_numpy()
    delays_s = delays_s[~np.isnan(delays_s)]
    return float((1e3 * delays_s > target.send_delay_limit_ms).mean()) if delays_s.size else 0.0
