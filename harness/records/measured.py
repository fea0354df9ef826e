"""The metrics of a run, made from what its record stores: trace, log, steps, request table and the facts of the run.

A worker makes them when it has measured, and every reader makes them again: nothing on disk states a metric that its
own tables do not give. What has been made once is kept in `harness.records.metrics_cache`.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from pydantic import TypeAdapter

from harness.request_tables.steady_window import WHOLE, Load, Window, steady_window
from workloads.errors import UserError

if TYPE_CHECKING:
    from harness.metrics.metric import Metric
    from workloads.trace import Trace


@dataclass(frozen=True)
class LiveFacts:
    """Facts of a live run that no table has. `late_s`: the send delay above which a send is late. `floor`: the result
    against the null server, s. `lost_sessions`: those of load generators that were lost. `speaks`: whether the server
    could have spoken."""

    late_s: float
    floor: Mapping[str, Any] = field(default_factory=dict)
    lost_sessions: int = 0
    speaks: bool = True


@dataclass(frozen=True)
class RunFacts:
    """Facts of a run that no table has. `end_s`: its end, s. `timing`: of its kind of workload (`harness.kinds`).
    `counters`: the engine's own."""

    end_s: float = 0.0
    timing: Any = field(default_factory=Load)
    counters: Mapping[str, int] = field(default_factory=dict)
    live: LiveFacts | None = None

    def stored(self) -> dict[str, Any]:
        """Return them as JSON has them."""
        facts = {} if self.timing is None else asdict(self.timing)
        timing = {name: str(value) if _infinite(value) else value for name, value in facts.items()}
        return {**asdict(self), "timing": timing}


def facts_of(stored: Mapping[str, Any], timing: type[Any] | None) -> RunFacts:
    """Return the facts of a run as `stored` has them; `timing`: `Timing` of its kind of workload. ValueError for timing
    of another kind."""
    live = stored["live"]
    if live is not None:
        live = LiveFacts(live["late_s"], live["floor"], live["lost_sessions"], live["speaks"])
    run_timing = None if timing is None else TypeAdapter(timing).validate_python(stored["timing"])
    return RunFacts(stored["end_s"], run_timing, stored["counters"], live)


def _infinite(value: Any) -> bool:
    return isinstance(value, float) and math.isinf(value)


def planned_turns(trace: Trace, facts: RunFacts) -> pd.DataFrame:
    """Return the columns of the trace, as far as they hold for the served turns."""
    turns = pd.DataFrame(trace.columns(), copy=False)
    return turns if facts.live is None or facts.live.speaks else turns.assign(reply_audio_s=math.nan)


def window_of(facts: RunFacts, requests: pd.DataFrame, turns: pd.DataFrame) -> Window:
    """Return the steady window of a run; WHOLE for frames, which come whatever users do. `turns` as of
    `planned_turns`."""
    return steady_window(requests, turns, facts.timing) if isinstance(facts.timing, Load) else WHOLE


def metrics_of(
    kind: Any,
    facts: RunFacts,
    turns: pd.DataFrame,
    events: pd.DataFrame | Iterable[pd.DataFrame],
    steps: pd.DataFrame,
    requests: pd.DataFrame,
    more: Mapping[str, pd.DataFrame],
    trace: Trace,
) -> dict[str, Metric]:
    """Return the metrics of a run by name.

    `kind`: of its workload. `turns` as of `planned_turns`, `events` and `steps` as of `harness.events.log`, `requests`
    as of `Kind.requests`. `more`: further tables of the record by name; `sends`, `failures` and `scrape` of live runs
    and `outputs` and `answers` of quality probes are read.
    """
    from harness.metrics.from_packages import keeping, of_packages, package_metrics

    kept: list[pd.DataFrame] = []
    if packages := {name: each for name, each in package_metrics().items() if each.kind == kind.name}:
        events = keeping(events, {name for each in packages.values() for name in each.reads}, kept)
    metrics = dict(kind.metrics(turns, events, steps, requests, facts.end_s, facts.timing))
    if packages:
        from harness.metrics.rates import rate_span

        deque(events, maxlen=0)  # what the kind has not read
        begins_s = requests["turn_start_s"].to_numpy(float) if "turn_start_s" in requests else np.zeros(1)
        span = rate_span({"turn_start_s": begins_s}, window_of(facts, requests, turns), facts.end_s)
        own = of_packages(packages, requests, turns, pd.concat(kept), span)
        if taken := own.keys() & metrics.keys():
            raise UserError(f"metric {min(taken)} of {' or '.join(packages)} has the name of one of ours; rename it.")
        metrics |= own
    if facts.live is not None:
        from harness.metrics.live import summarise_live

        assert isinstance(events, pd.DataFrame), "the log of a live run is read whole"

        rows = kind.turn_rows(requests)
        metrics |= summarise_live(
            events,
            rows,
            more["sends"],
            more["failures"],
            facts.live.floor,
            late_s=facts.live.late_s,
            window=window_of(facts, requests, turns),
            scrape=more.get("scrape"),
            lost_sessions=facts.live.lost_sessions,
            answered=kind.answered(requests) if rows is None else None,
            trace=turns,
        )
    if "answers" in more:
        from harness.metrics.quality import summarise_quality

        metrics |= summarise_quality(trace, more["outputs"], more["answers"])
    return metrics
