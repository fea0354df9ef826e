"""DeepSeek-R1 on Ascend 910C in closed loop (section 6.1), as Tables 1 and 2 run it.

In a closed loop the next request begins as one ends, so that a fixed number is in flight (section 5). It is measured
over a window between ramp and drain: the window begins when the first requests, which all came at once, have been
replaced, and ends when none is left to replace one.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from harness.experiments.experiment import Experiment
from harness.request_tables.request_table import COMPLETED
from reports.claims.quantities import Quantity, Setting, of
from reports.papers.experiment import experiment
from reports.runs.measured import Measured

RAMP = 2.0
"""Mean requests' lengths before the window, where all come at once. [chosen]"""

STAGGERED_RAMP = 2.5
"""[chosen] The same where requests come one by one, at a rate a little above the throughput, until all are in flight.
It is the least in steps of 0.5 from which on every row of Table 2 obeys Little's law within 5 %."""


@dataclass(frozen=True, slots=True)
class ClosedLoop:
    """Measurements of the `n` requests that ended in the window.

    `qpm`: requests per minute. `in_flight`: mean number, counted; `littles_law`: the same as throughput times mean
    time, which agrees where the load is steady. Times in s; `tpot_*`: of requests, each one's mean.
    """

    begin_s: float
    end_s: float
    n: int
    qpm: float
    in_flight: float
    littles_law: float
    e2e_mean_s: float
    e2e_p99_s: float
    ttft_mean_s: float
    ttft_p99_s: float
    tpot_mean_s: float
    tpot_p99_s: float
    output_tps: float

    def per_two_nodes(self, nodes: int) -> float:
        """Requests per minute per two nodes, as in OmniInfer's tables."""
        return self.qpm * 2 / nodes

    @property
    def lengths(self) -> float:
        """Mean requests' lengths that the window lasts."""
        return (self.end_s - self.begin_s) / self.e2e_mean_s


def closed_loop(requests: pd.DataFrame, ramp: float = RAMP) -> ClosedLoop | None:
    """Measures a closed loop by its request table; `ramp`: mean lengths before the window. None where the run was too
    short for one.
    """
    columns = ("turn_start_s", "completion_s", "e2e_s", "ttft_s", "tbt_mean_s", "generated_entry")
    start, end, e2e, ttft, tpot, tokens = (
        requests[name].to_numpy(float, na_value=np.nan) for name in columns
    )
    done = np.asarray(requests["status"], str) == COMPLETED
    if not done.any():
        return None
    begin_s, end_s = float(start.min() + ramp * np.nanmean(e2e)), float(start.max())
    inside = done & (end > begin_s) & (end <= end_s)
    if end_s <= begin_s or not inside.any():
        return None
    seconds, n = end_s - begin_s, int(inside.sum())
    flying = np.clip(end, begin_s, end_s) - np.clip(start, begin_s, end_s)
    return ClosedLoop(
        begin_s,
        end_s,
        n,
        qpm=60 * n / seconds,
        in_flight=float(np.nansum(flying) / seconds),
        littles_law=float(n / seconds * e2e[inside].mean()),
        e2e_mean_s=float(e2e[inside].mean()),
        e2e_p99_s=float(np.percentile(e2e[inside], 99)),
        ttft_mean_s=float(ttft[inside].mean()),
        ttft_p99_s=float(np.percentile(ttft[inside], 99)),
        tpot_mean_s=float(np.nanmean(tpot[inside])),
        tpot_p99_s=float(np.nanpercentile(tpot[inside], 99)),
        output_tps=float(tokens[inside].sum() / seconds),
    )


ENGINE = "omniinfer"

INPUT, OUTPUT = 3200, 1180
"""Mean tokens: section 6.1 says about 3,500 and 1,000, and Table 2's columns (E2E, TTFT, TPOT, OTT, TTT) follow from
these."""

SKEW = 0.33
"""[calibrated] Zipf's exponent of the experts, to Table 2's TPOT of 65 ms without OmniPlacement alone."""

LENGTHS = 5
"""Requests of a run over those in flight: the window lasts two and a half mean requests, 7,000 and more. [chosen]"""

FILL_RATE = 8.45
"""[chosen] requests a second for each prefill instance, by which they come one by one until as many are in flight: what
an instance can do (`prefill`), less two per cent. Faster, and they queue in front of the instances until the run is
over; slower, and they are never all there. Once they are one comes as one ends."""

FITTED_PREFILL = (
    "the time of a prefill step was scaled, once for all rows, to how Table 1's TTFT grows with its QPM"
)

OMNIPROXY: dict[str, Any] = {"routing": "omniproxy", "decode_routing": "least_work", "deferred": True}
ALL: dict[str, Any] = {"placement": "omniplacement", "attention": "omniattn", **OMNIPROXY}

SMALL_BATCHES = (
    "a prefill batch has 16,384 tokens at most here, chosen without a source, and lasts 0.6 s; a request "
    "waits for little more than the running batch and its own. OmniInfer's open-source template has 30,000"
)
"""Reason why first tokens come sooner in our runs."""


def cluster(shape: str, in_flight: int, suffix: str = "", **settings: Any) -> Experiment:
    """Return the experiment of a cluster (`6p8_1d32`) with this number of requests in flight; `settings` of the
    system."""
    load = {
        "deployment": f"deepseek_r1_{shape}",
        "c": in_flight,
        "requests": int(LENGTHS * in_flight),
        "rate": FILL_RATE * int(shape[0]),
        "input_mean": INPUT,
        "output_mean": OUTPUT,
        "playback": "none",
        "turn_timeout_s": 900,
        "stream_interval": 64,
        "expert_skew": SKEW,
    }
    name = f"omniinfer-{shape}-{in_flight}{suffix}"
    return experiment(name, [ENGINE], "novel", load | settings, timeout_s=3600)


def at(panel: str) -> Setting:
    """The one setting of a panel."""
    return of(panel, ENGINE)


def steady(point: Measured) -> ClosedLoop | None:
    """The steady part of a point, between ramp-up and drain."""
    return closed_loop(point.all_requests, STAGGERED_RAMP)


def measured(name: str) -> Quantity:
    """A field of `ClosedLoop`."""

    def quantity(point: Measured) -> float | None:
        part = steady(point)
        return None if part is None else float(getattr(part, name))

    return quantity


def qpm(point: Measured) -> float | None:
    """Requests per minute of two nodes, as the paper's tables have them."""
    part = steady(point)
    return None if part is None else part.per_two_nodes(nodes(point))


def total_tps(point: Measured) -> float | None:
    """Prompt and output tokens a second: every request of the steady part brings a mean prompt."""
    part = steady(point)
    if part is None:
        return None
    prompts = point.record.trace().columns()["input_tokens"]
    return part.output_tps + part.qpm / 60 * float(prompts.mean())


def nodes(point: Measured) -> int:
    """Ascend nodes of 16 dies that the point's deployment is made of."""
    from engines.deployments import load_deployment

    groups = load_deployment(point.params["deployment"]).gpu_groups
    return sum(len(group) for group in groups) // 16
