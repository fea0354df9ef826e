"""One point, measured: its trace, the replay, and the metrics over the log of the replay."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from harness.kinds.kind import OnePass
from harness.metrics.quality import decoder_of, judge
from harness.records.measured import RunFacts, metrics_of, planned_turns
from harness.records.record import InvalidPoint, Measurement
from harness.replays.point import ReplayPoint


def measure(point: ReplayPoint, folder: Path | None = None) -> Measurement:
    """Replay `point` in this process, which must have served nothing before.

    `folder`: of its record, where the log of a long run goes while it runs. ValueError as `Point.trace` says.
    InvalidPoint when the users acted late, which only happens on the wall clock.
    """
    from harness.replays.worker.replay import replay  # loads vLLM, which only workers need

    trace = point.trace()
    run = replay(point, trace, folder=folder)
    setup = point.setup
    kind, server = setup.kind, setup.server
    timing = kind.timing(setup.system, setup.client, server.deployment, trace)
    facts = RunFacts(run.run_end_s, timing, run.counters)
    turns = planned_turns(trace, facts)

    whole = None if isinstance(kind, OnePass) else run.events.to_pandas()

    def events() -> Any:
        return (piece.to_pandas() for piece in run.log.event_pieces()) if whole is None else whole

    requests, more = kind.requests(turns, events(), facts.timing), dict[str, pa.Table]()
    for kind_of_event, counter, table in REFUSALS:
        if run.counters.get(counter):
            more[table] = refusals(run.log.event_pieces(), kind_of_event)
    if run.answers is not None:
        checkpoint = server.params.checkpoint
        assert checkpoint is not None, "what has been said was read with a checkpoint's tokenizer"
        quality = judge(trace, run.answers, decoder_of(checkpoint))
        more = {"outputs": quality.outputs, "answers": quality.answers}
    check_send_delay(requests["send_delay_s"].to_numpy(), setup.client.turn_send_delay_limit_s)
    read = {name: table.to_pandas() for name, table in more.items()}
    metrics = metrics_of(kind, facts, turns, events(), run.steps.to_pandas(), requests, read, trace)
    files = run.log.files()
    return Measurement(
        trace=trace,
        events=files.get("events") or run.events,
        steps=files.get("steps") or run.steps,
        requests=requests,
        metrics={name: metric.as_dict() for name, metric in metrics.items()},
        facts=facts,
        proof=run.proof,
        cost=run.cost,
        more=more,
    )


REFUSALS = (("refused", "refused_prompts", "failures"), ("rejected", "rejected_turns", "rejections"))
"""Kind of event of turns without a reply, the counter of these, and the table of their reasons."""


def refusals(events: Iterable[pa.Table], kind: str = "refused") -> pa.Table:
    """Return the turns of a log that the server refused, in the form of the failures of a live run."""
    from engines.turns.gateway import TOO_LONG

    rows = pd.concat([each[each["kind"] == kind] for each in (piece.to_pandas() for piece in events)])
    turns = {name: rows[name].to_numpy(np.int32) for name in ("session", "turn")}
    reasons = [TOO_LONG] * len(rows) if kind == "refused" else rows["stage"].astype(str).to_list()
    return pa.table({"t_s": rows["t"].to_numpy(), **turns, "reason": reasons})


def check_send_delay(lags_s: np.ndarray, limit_s: float) -> None:
    """Raise InvalidPoint when a tenth of the turns was sent later than `limit_s`; in virtual time no send is late."""
    lags_s = lags_s[~np.isnan(lags_s)]
    lag_s = np.quantile(lags_s, 0.9) if lags_s.size else 0.0
    if lag_s > limit_s:
        raise InvalidPoint(
            f"a tenth of the turns was sent {1e3 * lag_s:.0f} ms late or later (limit {1e3 * limit_s:.0f} ms): "
            "other work on this machine delayed the users; run the same command again when it is quiet"
        )
