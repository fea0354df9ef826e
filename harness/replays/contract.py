"""Rules that every scheduling policy keeps, for the tests of its package: `check_policy("edf")`.

The policy plans for real engines in virtual time. AssertionError with a sentence about the first rule that is broken.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from copy import copy
from math import isfinite
from typing import Any

import numpy as np
import pandas as pd

from engines.core.policy import Plan, Policy, StageView
from harness.replays.expand import point_of
from harness.replays.worker.replay import replay
from workloads.registry import make_trace
from workloads.trace import Trace

TEXT = {"deployment": "llama_8b_1gpu", "kv_pool_blocks": 160}
"""Settings of the text crowd. Its KV pool is small, so that requests wait and are preempted."""
SEED = 3


def check_policy(scheduler: str, system: str = "vllm_omni_wo", **settings: object) -> None:
    """Check the plans of a scheduler for two crowds, each served twice. It takes some seconds. `system`: with this
    scheduler; `settings`: parameters of the system.

    The first crowd types faster than the server answers, with tenants and, for half of the requests, predicted lengths.
    The second one speaks and interrupts.
    """
    texts = make_trace(
        "poisson", {"rate": 40.0, "requests": 40, "max_reply_tokens": 200, "reply": "text", "modality": "text"}, SEED
    )
    for trace, server in ((_hinted(texts), TEXT), (make_trace("voice", {"sessions": 6, "p": 0.5}, SEED), {})):
        one, other = (_played(scheduler, system, {**settings, "scheduler": scheduler}, server, trace) for _ in range(2))
        same = one[0].equals(other[0]) and one[1].equals(other[1]) and one[2] == other[2]
        assert same, f"{scheduler}: two runs of one seed differ; let plans depend on nothing but views"


def check_plan(view: StageView[Any], plan: Plan) -> None:
    """Check a plan for this view."""
    known = {request.id for request in (*view.requests, *view.parked)}
    named = {"order": plan.order, "preempt": plan.preempt, "held": plan.held, "caps": plan.caps}
    for field, ids in named.items():
        assert known.issuperset(ids), f"{field} names {sorted(set(ids) - known)[:3]}, which the view does not have"
    for field in ("order", "preempt"):
        twice = [id for id, count in Counter(named[field]).items() if count > 1]
        assert not twice, f"{field} names {twice[:3]} twice"
    for limit in (*plan.caps.values(), *([] if plan.step_budget is None else [plan.step_budget])):
        assert isinstance(limit, int | np.integer) and limit >= 0, f"a limit of {limit!r} is no number of tokens"
    assert plan.wake_s is None or isfinite(plan.wake_s), f"wake_s is {plan.wake_s}"


class _Checked:
    """The `plan` of a policy with its checks."""

    def __init__(self, policy: Policy) -> None:
        self._plan = policy.plan

    def __call__(self, view: StageView[Any]) -> Plan:
        before = [copy(request) for request in view.requests]
        plan = self._plan(view)
        where = f"{view.stage} at {view.now:.3f} s"
        assert isinstance(plan, Plan), f"{where}: plan returned {plan!r:.60}, but a policy returns a Plan"
        assert before == [*view.requests], f"{where}: plan changed its view; let it copy what it sorts"
        try:
            check_plan(view, plan)
        except AssertionError as error:
            raise AssertionError(f"{where}: {error}") from None
        return plan


def _played(
    scheduler: str, system: str, params: dict[str, object], server: dict[str, object], trace: Trace
) -> tuple[pd.DataFrame, pd.DataFrame, dict[str, int]]:
    """Return the events, steps and counters of a run."""

    def check(serving: Any) -> None:
        policies: Sequence[Policy] = [each.policy for each in serving.engines if each.policy is not None]
        for policy in policies:
            assert isinstance(policy.counters, Counter), f"{scheduler}: counters should be a Counter"
            policy.plan = _Checked(policy)  # type: ignore[method-assign]

    point = point_of(trace, system, system=params, server=server, client={"c": None}, seed=SEED)
    done = replay(point, trace, check)
    events = done.events.to_pandas()
    ended = int((events["kind"] == "turn_done").sum())
    assert ended == len(trace), f"{scheduler}: {len(trace) - ended} of {len(trace)} turns have no answer"
    return events, done.steps.to_pandas(), done.counters


def _hinted(trace: Trace) -> Trace:
    columns = trace.columns()
    at = np.arange(len(trace))
    predicted = np.where(at % 4, columns["output_tokens"], np.nan)
    hints = {"tenant": np.array(["a", "b"])[at % 2], "predicted_tokens": predicted}
    return Trace.from_columns({**columns, **hints}, generator="contract")
