"""A stage as ConServe runs it: where its steps can be interrupted, and when its KV goes to the host and comes back."""

from dataclasses import replace

from engines.core.host_copies import HostCopies
from engines.core.safepoints import Safepoints
from engines.core.stage import Stage
from engines.systems.conserve.params import KvParams, OrderParams


def as_scheduled(stage: Stage, params: OrderParams) -> Stage:
    """Safepoints cost their time whether or not anybody leaves."""
    stage = replace(stage, admit=params.admit)
    if not params.layer_preemption:
        return stage
    seconds = params.safepoint_s if stage.split == 1 else params.safepoint_split_s
    return stage.extended(Safepoints(params.safepoint_layers, seconds))


def with_copies(stage: Stage, params: KvParams) -> Stage:
    """Only offline requests give way to others that came later, so that only theirs is copied."""
    if params.resume == "recompute":
        return replace(stage, prefix_caching=False)
    stores = "preempted" if params.resume == "swap" else "computed"
    loads = "beside" if params.resume == "ic_prefetch" else "before"
    return stage.extended(HostCopies(stores, loads, params.offline_priority))
