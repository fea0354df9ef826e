"""Names that settings, metrics and columns of results had in the version before, and their names now.

The names before are read for one more version: from `--set`, experiment files and results directories.
`tools.same_results` compares results of two versions by these tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

V = TypeVar("V")

SETTINGS = {
    "lazy_steps": "decode_fast_path",
    "order": "scheduler",
    "send_lag_limit_s": "turn_send_delay_limit_s",
    "slip_limit_ms": "send_delay_limit_ms",
}
OF_WORKLOADS = {
    "co_serving": {"pool": "backlog", "pool_tps": "backlog_tps"},
    "interactive": {"rounds": "turns", "rounds_shape": "turns_shape"},
    "voice_batch": {"pool": "backlog"},
}
"""Settings of single workloads. `servegen` has another `pool` and `revisit` other `rounds`, which keep their names."""
METRICS = {
    "send_lag_p99": "turn_send_delay_p99",
    "send_slip_p50": "send_delay_p50",
    "send_slip_p99": "send_delay_p99",
    "send_slip_p999": "send_delay_p999",
    "send_slip_max": "send_delay_max",
    "floor_slip_p99": "floor_send_delay_p99",
    "batch_slip_p99": "batch_send_delay_p99",
    "pool_dry_s": "backlog_dry_s",
}
COLUMNS = {
    "send_lag_s": "send_delay_s",
    "slip_s": "send_delay_s",
}
"""Columns of the tables of a record: of `requests` and of `sends`."""
KINDS = {"pool_dry": "backlog_dry"}
"""Kinds of events in the log."""
FLOOR = {f"slip_{statistic}_s": f"send_delay_{statistic}_s" for statistic in ("p50", "p99", "max")}
"""Values of the floor in a manifest (`harness.live.run.floor`)."""


def settings_of(workload: object) -> dict[str, str]:
    """Return the former names of the settings of an experiment on this workload, with the names now."""
    return SETTINGS | OF_WORKLOADS.get(str(workload), {})


def now(names: Mapping[str, str], values: Mapping[str, V]) -> dict[str, V]:
    """Return the values by their names now."""
    return {names.get(name, name): value for name, value in values.items()}
