"""Service of each client, and how evenly it is shared."""

import numpy as np
import pandas as pd

from harness.metrics.definitions import Definition
from harness.metrics.from_packages import PackageMetrics, RunTables
from harness.metrics.metric import Result
from vtc.policy import INPUT, OUTPUT

READS = ("first_text", "text")
"""Kinds of events by which clients get tokens."""


def served(events: pd.DataFrame, requests: pd.DataFrame) -> pd.DataFrame:
    """Return t, s, tenant and weighted tokens of each event. Prompts count with the first token of their answers, as
    the client gets it."""
    came = events.merge(requests[["session", "turn", "tenant", "input_tokens"]], on=["session", "turn"])
    first = (came["kind"] == "first_text").to_numpy()
    prompts, answers = (came[name].to_numpy(float) for name in ("input_tokens", "value"))
    return came[["t", "tenant"]].assign(tokens=INPUT * prompts * first + OUTPUT * answers)


def measure(run: RunTables) -> dict[str, Result]:
    if run.span is None or "tenant" not in run.requests:
        return {}
    begin_s, end_s = run.span
    came = served(run.events[run.events["t"].between(begin_s, end_s, inclusive="right")], run.requests)
    tokens, tenants = came["tokens"].to_numpy(), came["tenant"].to_numpy()
    clients = np.unique(run.requests["tenant"].to_numpy()).tolist()
    service = np.array([tokens[tenants == client].sum() for client in clients]) / (end_s - begin_s)
    n, total = len(clients), float(service.sum())
    each: dict[str, Result] = {f"{client}.service": (float(service[i]), n, 0) for i, client in enumerate(clients)}
    return {
        **each,
        "service": (total, n, 0),
        "jain": (total**2 / (n * float((service**2).sum())) if total else None, n, 0),
    }


METRICS = PackageMetrics(
    "turns",
    {
        "service": Definition(
            "1/s",
            f"tokens served, those of prompts times {INPUT} and those of answers times {OUTPUT}",
            "per second of the steady window; of all clients, or of one; n: clients",
            "higher",
        ),
        "jain": Definition(
            "1",
            "Jain's index of the clients' service: 1 where all get the same, 1 over their number where one gets all",
            "over the same time; n: clients",
            "higher",
        ),
    },
    measure,
    reads=READS,
)
