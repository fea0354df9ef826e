"""DeepSeek-R1 on Ascend 910C in closed loop (section 6.1), as Tables 1 and 2 run it.

In a closed loop the next request begins as one ends, so that a fixed number is in flight (section 5). It is measured
over a window between ramp and drain: the window begins when the first requests, which all came at once, have been
replaced, and ends when none is left to replace one.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from harness.experiments.experiment import Experiment
from harness.request_tables.request_table import COMPLETED
from reports.claims.claim import Claim, Unit
from reports.claims.quantities import Measure, Quantity, Setting, of, ratio, value
from reports.claims.stated import claim, level
from reports.figures.forms import Draw, Plot, bars, figure
from reports.figures.style import Look
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

TWICE = {"qpm": (572, 616), "ttft": (2.196, 2.292), "tpot": (0.052, 0.048)}
"""OmniInfer at 48 requests a die by Table 1 and by Table 2, QPM and s: a band ends half-way, so that no measured point
counts as both."""

FITTED_PREFILL = (
    "the time of a prefill step was scaled, once for all rows, to how Table 1's TTFT grows with its QPM"
)

OMNIPROXY: dict[str, Any] = {"routing": "omniproxy", "decode_routing": "least_work", "deferred": True}
ALL: dict[str, Any] = {"placement": "omniplacement", "attention": "omniattn", **OMNIPROXY}

ONE_QUEUE = (
    "{ours:.2f} s: with the paper's capacity, but as long as the instances keep up a request waits "
    "for little more than the running batch and its own (0.6 s each when full), while the paper's "
    "requests wait for three or four"
)
"""Reason why first tokens come sooner in our runs."""

LITTLE = "follows from TTFT, the time per token and replies of 1,180 tokens, by Little's law"

Columns = Mapping[str, tuple[str, Quantity, Unit, float]]
"""Columns by name: the paper's name, ours, the unit, and the allowed relative distance. [chosen]"""

Rows = Mapping[str, tuple[str, Sequence[float]]]
"""Rows by name: the panel of the card, and the paper's numbers in the order of the columns."""


def rows_stated(
    card: str,
    rows: Rows,
    columns: Columns,
    why: Mapping[str, str],
    calibrated: Callable[[str, str], str],
    others: Callable[[str, str], Sequence[float]],
    counted: str = "",
) -> dict[str, Claim]:
    """A claim for each value of a table, by panel and column. It may lie as far from the paper's as its column allows,
    and at most half-way to any of the `others` that it has to be distinguished from. `counted` ends the row's name."""
    return {
        f"{card}-{panel}-{column}": claim(
            f"{row}{counted}: {name}",
            level(
                paper, unit, min([near * paper, *(abs(each - paper) / 2 for each in others(panel, column))])
            ),
            value(quantity, at(panel)),
            why[column],
            calibrated=calibrated(panel, column),
            derived=LITTLE if column in ("qpm", "e2e") else "",
        )
        for row, (panel, published) in rows.items()
        for (column, (name, quantity, unit, near)), paper in zip(columns.items(), published, strict=True)
    }


def table(title: str, shape: tuple[int, float], rows: Rows, columns: Columns, caption: str) -> Draw:
    """A table as bars: a panel for each column, a bar for each row, the paper's value on it. `shape`: columns of
    panels, and their height in inches."""

    def plot(index: int, name: str, quantity: Quantity, unit: str) -> Plot:
        return bars(
            quantity,
            {"": {row: at(panel) for row, (panel, _) in rows.items()}},
            style={"": Look("#8fb3d9", "o", "-", 1.4)},
            marks={"": {row: published[index] for row, (_, published) in rows.items()}},
            rows=True,
            xlabel=f"{name}, {unit}" if unit else name.replace("tokens/s", "tokens, 1000/s"),
        )

    plots = [plot(index, *column[:3]) for index, column in enumerate(columns.values())]
    return figure(title, *plots, columns=shape[0], height_in=shape[1], sharey=True, caption=caption)


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
    return closed_loop(point.requests, STAGGERED_RAMP)


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


COLUMNS: Columns = {
    "ttft": ("TTFT", measured("ttft_mean_s"), "s", 0.2),
    "ttft-p99": ("p99 TTFT", measured("ttft_p99_s"), "s", 0.2),
    "tpot": ("TPOT", measured("tpot_mean_s"), "ms", 0.1),
    "tpot-p99": ("p99 TPOT", measured("tpot_p99_s"), "ms", 0.1),
    "qpm": ("QPM", qpm, "", 0.1),
    "e2e": ("E2E", measured("e2e_mean_s"), "s", 0.1),
    "e2e-p99": ("p99 E2E", measured("e2e_p99_s"), "s", 0.1),
    "ott": ("output tokens/s", measured("output_tps"), "", 0.1),
    "ttt": ("all tokens/s", total_tps, "", 0.1),
}


def over(column: str, panel: str, base: str) -> Measure:
    """A column of one panel over that of another."""
    return ratio(COLUMNS[column][1], at(panel), to=at(base))
