"""One point, measured: its trace, the replay, and the metrics over the log of the replay."""

from __future__ import annotations

from dataclasses import asdict

import pandas as pd

from harness.experiment import Point
from harness.metrics.requests import request_table
from harness.metrics.summary import summarise
from harness.record import Measurement
from workloads.registry import make_trace


def measure(point: Point) -> Measurement:
    """Replay `point` in this process, which must have served nothing before.

    ValueError when its trace is not the one that the point was named after: then a generator is not
    deterministic.
    """
    from harness.replay import replay  # loads vLLM, which only workers need

    trace = make_trace(point.workload, point.workload_params, point.seed)
    if trace.header.hash != point.trace_hash:
        raise ValueError(
            f"the trace changed since the run began: {trace.header.hash}, not {point.trace_hash}"
        )
    run = replay(
        point.engine,
        point.engine_params,
        point.server_params,
        point.client_params,
        trace,
        point.seed,
        point.device,
        profile=point.profile,
    )
    turns = pd.DataFrame(trace.columns())
    requests = request_table(run.events.to_pandas(), turns)
    metrics = summarise(requests, run.steps.to_pandas(), run.run_end_s, planned_turns=len(turns))
    return Measurement(
        trace=trace,
        events=run.events,
        steps=run.steps,
        requests=requests,
        metrics={name: asdict(metric) for name, metric in metrics.items()},
        counters=run.counters,
        proof=run.proof,
        cost=run.cost,
    )
