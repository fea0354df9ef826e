"""Loads of measured runs, one by one, to be replayed again and again."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from harness.measured_runs.measured_run import LATENCIES, MeasuredRun, SummaryRun, achieved_rate
from harness.measured_runs.predict import DEPLOYMENT, Planned, beside, parts_of, serve
from harness.measured_runs.replayed import Prefixes, queue_grows

MOST_REQUESTS = 400
"""[chosen] Most requests of a load that are replayed. A fit then takes minutes."""

Means = dict[str, float]
"""By LATENCIES, s; NaN where nothing was measured."""


@dataclass(frozen=True)
class Load:
    """One load. `rate`: achieved, requests a second. `in_flight`: by Little's law. `counted`, by LATENCIES: number of
    requests behind the mean in `measured`."""

    label: str
    deployment: str
    columns: dict[str, np.ndarray]
    prefixes: Prefixes
    rate: float
    in_flight: float
    saturated: bool
    measured: Means
    counted: dict[str, np.ndarray]


def loads_of(planned: Planned, folder: Path) -> Iterator[Load]:
    """Return each part of a run by itself, from its first request on. `folder`: in which the run was planned."""
    run, path = planned.run, str(folder / planned.run.name / DEPLOYMENT)
    columns = {name: np.asarray(values) for name, values in planned.trace.columns().items()}
    if isinstance(run, SummaryRun):
        yield _in_sum(run, path, columns, planned.prefixes)
        return
    table = beside(run, pd.DataFrame({"part": parts_of(run, len(run.requests))}))
    for label, begin, end in run.parts:
        if end - begin > 1:
            yield _part(run, f"{run.name}, {label}", (begin, end), path, columns, planned.prefixes, table)


def _in_sum(run: SummaryRun, path: str, columns: dict[str, np.ndarray], prefixes: Prefixes) -> Load:
    measured = {name: run.measured.get(f"{name}_mean", np.nan) for name in LATENCIES}
    measured["itl"] = (measured["e2e"] - measured["ttft"]) / max(1.0, run.output_tokens - 1)
    rate = run.achieved or sum(rate * s for rate, s in run.rates) / sum(s for _, s in run.rates)
    counted = {name: np.ones(len(prefixes), bool) for name in LATENCIES}
    label, in_flight = f"{run.name}, {run.workload}", rate * measured["e2e"]
    return Load(label, path, columns, prefixes, rate, in_flight, False, measured, counted)


def _part(
    run: MeasuredRun,
    label: str,
    span: tuple[int, int],
    path: str,
    columns: dict[str, np.ndarray],
    prefixes: Prefixes,
    table: pd.DataFrame,
) -> Load:
    begin, end = span
    cut = slice(begin, min(end, begin + MOST_REQUESTS))
    here = table.iloc[cut]
    own = {name: values[cut] for name, values in columns.items()}
    arrival = own["arrival_s"] - own["arrival_s"][0]
    own |= {"arrival_s": arrival, "session": np.arange(len(here))}
    e2e = here["measured_e2e"].to_numpy(float)
    # Later ones met requests that are not replayed.
    whole = np.full(len(here), True) if cut.stop == end else arrival + e2e <= arrival[-1]
    seen = {name: here[f"measured_{name}"].to_numpy(float) for name in LATENCIES}
    counted = {name: whole & ~np.isnan(values) for name, values in seen.items()}
    measured = {
        name: float(seen[name][mask].mean()) if mask.any() else np.nan for name, mask in counted.items()
    }
    rate = achieved_rate(list(arrival)) or np.inf
    saturated = bool(here["saturated"].iloc[0]) or not np.isfinite(rate)
    if not saturated and here["queue"].isna().all():
        known = pd.DataFrame({"arrival": arrival, "predicted_e2e": np.nan_to_num(e2e)})
        saturated = queue_grows(known, [(rate, float(arrival[-1]))])
    return Load(label, path, own, prefixes[cut], rate, rate * measured["e2e"], saturated, measured, counted)


Replayable = tuple[str, dict[str, np.ndarray], Prefixes]


def served(loads: Sequence[Replayable], profile: dict[str, Any] | None) -> list[pd.DataFrame]:
    """Serve these loads in virtual time, one after the other, in a fresh process."""
    return [serve(*load, "measured", profile)[0] for load in loads]


def means_of(load: Load, latencies: pd.DataFrame) -> Means:
    """Return the mean latencies of a load's replay, over the requests whose latencies were measured."""
    found = {}
    for name, mask in load.counted.items():
        values = latencies[f"predicted_{name}"].to_numpy(float)[mask]
        found[name] = float(np.nanmean(values)) if (~np.isnan(values)).any() else np.nan
    return found
