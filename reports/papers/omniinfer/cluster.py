"""DeepSeek-R1 on Ascend 910C in closed loop (section 6.1), as Tables 1 and 2 run it.

In a closed loop the next request begins as one ends, so that a fixed number is in flight (section 5). It is measured
over the steady window of every run (`harness.request_tables.steady_window`), which begins when as many requests have
ended as are in flight at once. A reader decides with the numbers by how much each part of OmniInfer changes what such a
cluster serves.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from harness.experiments.experiment import Experiment
from harness.metrics.rates import Span, within
from harness.request_tables.request_table import COMPLETED
from reports.claims.quantities import Quantity, Setting, of
from reports.papers.experiment import experiment
from reports.runs.measured import Measured


@dataclass(frozen=True, slots=True)
class ClosedLoop:
    """Measurements of the steady window of a closed loop, of the requests that completed.

    `qpm`: requests that ended in it per minute. `in_flight`: mean number, counted; `littles_law`: the same as
    throughput times mean time, which agrees where the load is steady. Times in s; `ttft_*`: of the requests that came
    in the window. `e2e_*`, and `tpot_*`, each request's mean: of the requests of its first third. Later requests end as
    the load falls, because nobody comes any more. `output_tps`: tokens at that throughput, 1/s.
    """

    begin_s: float
    end_s: float
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


def closed_loop(every: pd.DataFrame, steady: pd.DataFrame, span: Span | None) -> ClosedLoop | None:
    """Measures a closed loop by its request tables, of `every` request and of the `steady` ones, and the `span` of its
    steady window. None where nothing completed in it.
    """
    steady = steady.loc[steady["status"] == COMPLETED]
    if span is None or steady.empty:
        return None
    begin_s, end_s = span
    start, end = (every[name].to_numpy(float, na_value=np.nan) for name in ("turn_start_s", "completion_s"))
    per_s = within(end, span).sum() / (end_s - begin_s)
    flying = np.clip(end, begin_s, end_s) - np.clip(start, begin_s, end_s)
    columns = ("turn_start_s", "e2e_s", "ttft_s", "tbt_mean_s", "generated_entry")
    came, e2e, ttft, tpot, tokens = (steady[name].to_numpy(float, na_value=np.nan) for name in columns)
    early = came <= begin_s + EARLY * (end_s - begin_s)
    if not early.any():
        return None
    e2e, tpot = e2e[early], tpot[early]
    return ClosedLoop(
        begin_s,
        end_s,
        qpm=float(60 * per_s),
        in_flight=float(np.nansum(flying) / (end_s - begin_s)),
        littles_law=float(per_s * e2e.mean()),
        e2e_mean_s=float(e2e.mean()),
        e2e_p99_s=float(np.percentile(e2e, 99)),
        ttft_mean_s=float(ttft.mean()),
        ttft_p99_s=float(np.percentile(ttft, 99)),
        tpot_mean_s=float(np.nanmean(tpot)),
        tpot_p99_s=float(np.nanpercentile(tpot, 99)),
        output_tps=float(per_s * tokens.mean()),
    )


ENGINE = "omniinfer"

INPUT, OUTPUT = 3200, 1180
"""Mean tokens: section 6.1 says about 3,500 and 1,000, and Table 2's columns (E2E, TTFT, TPOT, OTT, TTT) follow from
these."""

SKEW = 0.33
"""[calibrated] Zipf's exponent of the experts, to Table 2's TPOT of 65 ms without OmniPlacement alone."""

EARLY = 1 / 3
"""Share of the steady window from which whole lifetimes are measured. The window lasts three mean requests, so 98 % of
these end in it. [chosen] by Little's law, which all requests of the window miss by 1 to 5 %, and these by 3 % at most.
Requests of its last third have a time per token that is 2 to 10 % shorter."""

LENGTHS = 5
"""Requests of a run over those in flight: the window lasts three mean requests, 9,000 where 3,072 are in flight.
[chosen]"""

FILL_RATE = 8.39
"""[chosen] requests a second for each prefill instance, by which they come one by one until as many are in flight: what
an instance can do (`prefill`), less two per cent. Faster, and they queue in front of the instances until the run is
over; slower, and they are never all there. Once they are one comes as one ends."""

FITTED_PREFILL = (
    "the time of a prefill step was scaled, once for all rows, to how Table 1's TTFT grows with its QPM, without the "
    "row that Table 2 repeats"
)

FIRST_TOKENS = (
    "the level is no input: a step's time is by the start values of the proxy's code, scaled to the load at which "
    "Table 1's TTFTs grow; no published rule that we tried moves all rows to the paper's (trials on this page)"
)
"""Reason why first tokens do not come when the paper's do."""

OMNIPROXY: dict[str, Any] = {"routing": "omniproxy_oss", "decode_routing": "least_work"}
"""The published rule: the code sends each request to a prefill instance at once."""
ALL: dict[str, Any] = {"placement": "omniplacement", "attention": "omniattn", **OMNIPROXY}


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
    """The steady window of a point."""
    return closed_loop(point.all_requests, point.requests, point.span)


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
    """Prompt and output tokens a second: every request of the steady window brings a mean prompt."""
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
