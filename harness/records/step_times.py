"""What a record says of where its modelled step times come from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engines.devices.names import DEVICES, REAL_DEVICES
from engines.step_sources import step_sources
from workloads.errors import UserError

if TYPE_CHECKING:
    from harness.experiments.experiment import Point


def step_times(point: Point) -> dict[str, Any]:
    """`{"step_times": {stage: where its times are from}}` of a point on a modelled device; else nothing."""
    if point.device in REAL_DEVICES or point.device not in DEVICES or "deployment" not in point.server_params:
        return {}
    try:
        return {"step_times": step_sources(point.server, point.profile)}
    except UserError:
        return {}  # of a point that failed as its server cannot be
