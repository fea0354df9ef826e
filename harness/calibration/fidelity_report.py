"""The files of `rehearse fidelity`: one report of everything judged, and two tables behind its picture."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
from pydantic import BaseModel, ConfigDict, Field

from harness.calibration.agreement import Agreement, Canary, Verdict
from workloads.errors import UserError, validate

SCHEMA_VERSION = 1

MEASURED, MECHANICS, OTHER_RUN, PROFILE = "measured", "mechanics", "other run", "profile"
"""Sources of the latencies in `requests.parquet`, variants of them apart."""

REPORT, REQUESTS, DRIFT, LOG = "fidelity.json", "requests.parquet", "drift.parquet", "log.txt"


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class RunFacts(_Part):
    """One real run. `host_share`: of its step costs that lies outside the device. `late_*`: of its requests, from
    when they were due in the queue to when they were there."""

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


class Mechanics(_Part):
    """`matched`: share of virtual steps that were charged a logged step of the same counts. `scheduled`: shown and
    not judged, with the scheduled arrivals."""

    agreement: Agreement
    matched: float
    scheduled: Agreement


class Prediction(_Part):
    """The prediction of one real run by `source`: "other run" or "profile". `scaled`: times the canary's
    `canary_ratio`.
    """

    source: str
    agreement: Agreement
    canary_ratio: float
    scaled: Agreement


class Load(_Part):
    """One load; lists are by real run. `canary_moved`: its median in the second run over that in the first."""

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


class Report(_Part):
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
    capacity: float = Field(
        gt=0, description="requests/s of a saturated server, with the lengths of these traces"
    )
    lengths: dict[str, Any]
    profile: str | None = Field(description="origin of the profile that predicted, too")
    loads: list[Load] = Field(min_length=1)

    @property
    def passed(self) -> bool:
        """Whether mechanics passed at every load: what the exit status says."""
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
    """`requests.parquet`: load, run, source, session, turn, tpot, e2e, ttft (s). `drift.parquet`: load, run, kind,
    at_s, value. UserError when one is missing or damaged."""
    try:
        return pd.read_parquet(folder / REQUESTS), pd.read_parquet(folder / DRIFT)
    except (OSError, ValueError):
        raise UserError(f"{folder} lacks {REQUESTS} or {DRIFT}; run `rehearse fidelity`.") from None
