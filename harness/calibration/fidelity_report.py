"""The agreement of two runs of one trace, its verdict, and the files of `rehearse fidelity`.

Mechanics pass or fail; predictions pass, miss or are void. Errors are shares, |other / reference - 1| request by
request; a run's own aggregates are compared with a sign. The latencies are the clients': TPOT is the mean time between
text tokens of a reply, E2E the time from the user's scheduled end of turn to the last token, TTFT to the first. TTFT of
single requests is never judged: one step earlier or later changes it by tens of per cent.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from pydantic import Field

from engines.devices.profile import FilePart
from workloads.errors import UserError, validate

LATENCIES = {"tpot": "tbt_mean_s", "e2e": "e2e_s", "ttft": "ttft_s"}
"""Columns of a request table (`harness.request_tables.request_table`)."""

GATED = ("tpot", "e2e")
MECHANICS_MEDIAN, MECHANICS_P90, MECHANICS_STEPS = 0.02, 0.05, 0.01
"""[chosen] four runs by hand agreed within 0.7 %, 2.1 % and 0.3 % when each had the drift taken out."""

AIM, AIM_QUIET = 0.10, 0.05
"""[chosen] of a prediction's median TPOT error: on a shared machine, and on one that kept still."""

VOID_ABOVE, QUIET_BELOW = 0.10, 0.025
"""[chosen] movement of the machine, by its noise or its canary, above which no prediction can be judged; and below
which a machine counts as quiet."""

STRETCHES = 10
"""Successive stretches of a run whose medians show how its canary moved."""


class Errors(FilePart):
    """The errors of one latency: quantiles over the requests, and how the aggregates differ."""

    median: float = Field(ge=0)
    p90: float = Field(ge=0)
    p99: float = Field(ge=0)
    aggregate_p50: float
    aggregate_p90: float


class Agreement(FilePart):
    """The agreement of a run with a reference: `requests` completed in both, `unpaired` in only one of them."""

    requests: int
    unpaired: int
    steps: int
    reference_steps: int
    tpot: Errors
    e2e: Errors
    ttft: Errors

    @property
    def step_error(self) -> float:
        return abs(self.steps / self.reference_steps - 1)

    def errors(self, latency: str) -> Errors:
        return getattr(self, latency)


class Verdict(FilePart):
    result: Literal["pass", "fail", "miss", "void"]
    why: str


class Canary(FilePart):
    """The canary kernel during one run. `spread`: P90 over P10 of the medians of ten stretches, less one."""

    median_s: float = Field(gt=0)
    spread: float = Field(ge=0)
    share: float = Field(ge=0, description="of the run's time that went into it")


def by_turn(table: pd.DataFrame) -> pd.DataFrame:
    """Return the completed turns of a request table, a row each, with the columns tpot, e2e and ttft in s."""
    done = table[table["status"] == "completed"]
    index = pd.MultiIndex.from_arrays([done["session"], done["turn"]])
    columns = {name: np.asarray(done[column], float) for name, column in LATENCIES.items()}
    return pd.DataFrame(columns, index=index)


def agreement(reference: pd.DataFrame, other: pd.DataFrame, reference_steps: int, other_steps: int) -> Agreement:
    """Compare two tables of `by_turn` of the same trace. ValueError when no request is in both, or one ran no step."""
    both = reference.index.intersection(other.index)
    if both.empty or not reference_steps:
        raise ValueError("the two runs have no completed request in common")
    pairs = [np.asarray(table.loc[both, list(LATENCIES)], float).T for table in (reference, other)]
    errors = {name: _errors(name, *pair) for name, *pair in zip(LATENCIES, *pairs, strict=True)}
    unpaired = len(reference) + len(other) - 2 * len(both)
    return Agreement(
        requests=len(both), unpaired=unpaired, steps=other_steps, reference_steps=reference_steps, **errors
    )


def canary_of(at_s: ArrayLike, seconds: ArrayLike, run_s: float) -> Canary:
    """Return the canary of its single measurements in a run of `run_s`. ValueError when there is none."""
    values = np.asarray(seconds, float)
    if not values.size:
        raise ValueError("the canary never ran")
    return Canary(
        median_s=rounded(np.median(values)),
        spread=spread(at_s, values),
        share=rounded(values[np.argsort(np.asarray(at_s), kind="stable")].sum() / run_s),
    )


def spread(at_s: ArrayLike, values: np.ndarray) -> float:
    """Return P90 over P10, less one, of the medians of successive stretches of time."""
    order = np.argsort(np.asarray(at_s), kind="stable")
    medians = [float(np.median(values[part])) for part in np.array_split(order, STRETCHES) if len(part)]
    low, high = np.quantile(medians, [0.1, 0.9]).tolist()
    return rounded(high / low - 1)


def judge_mechanics(agreements: Sequence[Agreement]) -> Verdict:
    """Return the verdict: every run must keep every limit."""
    broken = []
    for number, one in enumerate(agreements, start=1):
        for latency in GATED:
            errors = one.errors(latency)
            for name, error, limit in (("median", errors.median, MECHANICS_MEDIAN), ("P90", errors.p90, MECHANICS_P90)):
                if error > limit:
                    broken.append(f"run {number}: {latency.upper()} {name} {percent(error)}, above {percent(limit)}")
        if one.step_error > MECHANICS_STEPS:
            broken.append(f"run {number}: {one.steps} steps instead of {one.reference_steps}")
        if one.unpaired > MECHANICS_STEPS * one.requests:
            broken.append(f"run {number}: {one.unpaired} requests completed in only one of the two")
    if broken:
        return Verdict(result="fail", why="; ".join(broken))
    worst = {name: max(one.errors(name).median for one in agreements) for name in GATED}
    p90 = {name: max(one.errors(name).p90 for one in agreements) for name in GATED}
    text = ", ".join(f"{name.upper()} {percent(worst[name])} (P90 {percent(p90[name])})" for name in GATED)
    return Verdict(result="pass", why=f"{text}, steps {percent(max(one.step_error for one in agreements))}")


def moved(noise: Agreement, canary: float) -> dict[str, float]:
    """Return how much the machine differed between two runs, by evidence. `canary`: later over earlier median."""
    return {
        "TPOT of single requests, real against real": noise.tpot.median,
        "median TPOT, real against real": abs(noise.tpot.aggregate_p50),
        "the canary": abs(canary - 1),
    }


def judge_prediction(predictions: Sequence[Agreement], movement: Mapping[str, float]) -> Verdict:
    """Return the verdict: void with too much `movement` (`moved`), however small the error; then by median TPOT
    error."""
    worst = max(predictions, key=lambda one: one.tpot.median)
    error = worst.tpot.median
    errors = f"TPOT error {percent(error)} (P90 {percent(worst.tpot.p90)}, P50 {100 * worst.tpot.aggregate_p50:+.1f} %)"
    most = max(movement, key=lambda name: movement[name])
    largest_move = f"{most} moved by {percent(movement[most])}"
    if movement[most] > VOID_ABOVE:
        return Verdict(result="void", why=f"{largest_move}, above {percent(VOID_ABOVE)}; {errors}")
    quiet = movement[most] <= QUIET_BELOW
    aim = AIM_QUIET if quiet else AIM
    if error <= aim:
        cause = ""
    elif abs(worst.tpot.aggregate_p50) > error / 2:
        cause = "; most of it is level: machine or clients were faster or slower than where the model was fitted"
    else:
        cause = "; most of it is scatter around a right level: drift within the run, or what the model cannot express"
    aimed = f"aim {percent(aim)}{' of a quiet machine' if quiet else ''}"
    return Verdict(result="miss" if cause else "pass", why=f"{errors}, {aimed}; {largest_move}{cause}")


def percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.1f} %"


def _errors(latency: str, reference: np.ndarray, other: np.ndarray) -> Errors:
    in_both = (reference > 0) & ~np.isnan(other)
    reference, other = reference[in_both], other[in_both]
    if not len(reference):
        raise ValueError(f"no request has a {latency} in both runs")
    median, p90, p99 = (rounded(value) for value in np.quantile(np.abs(other / reference - 1), [0.5, 0.9, 0.99]))
    p50s, p90s = np.quantile(other, [0.5, 0.9]) / np.quantile(reference, [0.5, 0.9]) - 1
    return Errors(median=median, p90=p90, p99=p99, aggregate_p50=rounded(p50s), aggregate_p90=rounded(p90s))


def rounded(value: Any) -> float:
    """Return the value to four digits, as files keep it."""
    return float(f"{value:.4g}")


SCHEMA_VERSION = 1

MEASURED, MECHANICS, OTHER_RUN, PROFILE = "measured", "mechanics", "other run", "profile"
"""Sources of the latencies in `requests.parquet`, variants of them apart."""

REPORT, REQUESTS, DRIFT, LOG = "fidelity.json", "requests.parquet", "drift.parquet", "log.txt"


class RunFacts(FilePart):
    """One real run. `host_share`: share of its step costs outside the device. `late_*`: delay of its requests, from
    when they were due in the queue to their arrival."""

    seconds: float
    steps: int
    requests: int
    tpot_p50_s: float
    e2e_p50_s: float
    step_mean_s: float
    host_share: float
    late_p50_s: float
    late_p90_s: float
    canary: Canary


class Mechanics(FilePart):
    """Agreement with the run's own step costs. `matched`: share of virtual steps that were charged a logged step of the
    same counts. `scheduled`: with the scheduled arrivals; shown, not judged."""

    agreement: Agreement
    matched: float
    scheduled: Agreement


class Prediction(FilePart):
    """The prediction of one real run by `source`: "other run" or "profile". `scaled`: times the canary's
    `canary_ratio`.
    """

    source: str
    agreement: Agreement
    canary_ratio: float
    scaled: Agreement


class Load(FilePart):
    """One load; lists are by real run. `canary_moved`: median of the second run over that of the first."""

    share: float
    rate: float
    requests: int
    runs: list[RunFacts]
    mechanics: list[Mechanics]
    prediction: list[Prediction]
    profile: list[Prediction]
    noise: Agreement
    canary_moved: float
    verdicts: dict[str, Verdict]


class Report(FilePart):
    """The content of `fidelity.json`."""

    schema_version: int = SCHEMA_VERSION
    device: str
    deployment: str
    model: str
    date: str
    machine: dict[str, Any]
    packages: dict[str, str]
    revision: dict[str, Any] | None
    duration_s: float
    quick: bool
    capacity: float = Field(gt=0, description="requests/s of a saturated server, with the lengths of these traces")
    lengths: dict[str, Any]
    profile: str | None = Field(description="origin of the profile that predicted, too")
    loads: list[Load] = Field(min_length=1)

    @property
    def passed(self) -> bool:
        """True where mechanics passed at every load, which the exit status reports."""
        return all(load.verdicts["mechanics"].result == "pass" for load in self.loads)


def load_report(folder: Path) -> Report:
    """Read what `fidelity` stored; UserError when it is missing or damaged."""
    path = folder / REPORT
    try:
        facts = json.loads(path.read_text())
    except (OSError, ValueError):
        raise UserError(f"{path} is missing or damaged; run `rehearse fidelity`.") from None
    if not isinstance(facts, dict):
        raise UserError(f"{path} is damaged; run `rehearse fidelity`.")
    return validate(Report, facts, str(path))


def load_tables(folder: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return `requests.parquet`: load, run, source, session, turn, tpot, e2e, ttft (s), and `drift.parquet`: load, run,
    kind, at_s, value. UserError when one is missing or damaged."""
    try:
        return pd.read_parquet(folder / REQUESTS), pd.read_parquet(folder / DRIFT)
    except (OSError, ValueError):
        raise UserError(f"{folder} lacks {REQUESTS} or {DRIFT}; run `rehearse fidelity`.") from None
