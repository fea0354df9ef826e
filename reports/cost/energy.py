"""Energy of GPUs, J: at the measured power of kernels if there is any, else an upper bound from the data sheets.

Measured power is that of a busy GPU: a step of one of its stages runs, the host's share included. A step that
computes prompts draws the mean of the power of attention and experts over many tokens, one that only decodes the mean
over few. The power of an idle GPU was not measured, so it is left out, and the data sheet's limit for all the time is
reported with it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np

from engines.deployments import Deployment
from engines.models import values
from harness.records.record import Record
from harness.request_tables.live_window import Window
from reports.runs.placement import gpus_of
from reports.tables.columns import MISSING
from workloads.files.yaml_file import shipped_yaml

Basis = Literal["measured kernels", "data sheet, at most", "as given"]
MEASURED: Basis = "measured kernels"
AT_MOST: Basis = "data sheet, at most"
GIVEN: Basis = "as given"

MEANING: Mapping[Basis, str] = {
    MEASURED: f"J a to b ({MEASURED}): a at what kernels drew, over the seconds in which a step ran, idle ones left "
    "out; b at the data sheet's limit all the time",
    AT_MOST: f"J ≤ ({AT_MOST}): every GPU at its power limit all the time",
    GIVEN: f"J ({GIVEN}): at the power given, all the time",
}


@dataclass(frozen=True)
class Busy:
    """W of one GPU while it computes a prompt, and while it only decodes."""

    prompt: float
    decode: float


@dataclass(frozen=True)
class Energy:
    """J on some basis, and at the data sheet's limit all the time; None if unknown."""

    basis: Basis | None
    j: float | None
    at_most: float | None

    @property
    def text(self) -> str:
        """`≤ 4,010`, `870 to 4,010` or `4,010`."""
        if self.j is None:
            return MISSING
        if self.basis == MEASURED:
            return f"{written(self.j)} to {written(self.at_most)}"
        return f"{'≤ ' if self.basis == AT_MOST else ''}{written(self.j)}"


def energy(gpu: str, gpu_s: float | None, kernel_j: float | None, given: float | None) -> Energy:
    """Return the energy of a number of GPU-seconds, at `given` W if the user set a power. `kernel_j`: energy of the
    busy time (`kernel_j`).
    """
    at_most = _product(power().get(gpu), gpu_s)
    if given is not None:
        return Energy(GIVEN, _product(given, gpu_s), at_most)
    if gpu in busy_power():
        return Energy(MEASURED, kernel_j, at_most)
    return Energy(AT_MOST if gpu in power() else None, at_most, at_most)


def kernel_j(record: Record, deployment: Deployment, window: Window) -> float | None:
    """J of the seconds within the window in which a GPU was busy; None where power was not measured, the point logged
    no steps, or a stage's GPUs are not known."""
    drawn = busy_power().get(deployment.gpu.name)
    if drawn is None:
        return None
    steps = record.table("steps", columns=["t_s", "dt_s", "stage", "replica", "prefill_tokens"])
    if steps.empty:
        return None
    begin_s = np.clip(steps["t_s"].to_numpy(float), window.begin_s, window.end_s)
    end_s = np.clip((steps["t_s"] + steps["dt_s"]).to_numpy(float), window.begin_s, window.end_s)
    prompt = (steps["prefill_tokens"] > 0).to_numpy()
    on: dict[int, np.ndarray] = {}
    for replica, rows in steps.groupby(["stage", "replica"], observed=True).indices.items():
        gpus = gpus_of(deployment, *cast("tuple[str, int]", replica))
        if not gpus:
            return None
        for gpu in gpus:
            on[gpu] = np.append(on.get(gpu, np.empty(0, int)), rows)
    total_j = 0.0
    for rows in on.values():
        first = rows[prompt[rows]]
        busy_s, prompt_s = _covered_s(begin_s[rows], end_s[rows]), _covered_s(begin_s[first], end_s[first])
        total_j += drawn.prompt * prompt_s + drawn.decode * (busy_s - prompt_s)
    return total_j


@cache
def power() -> Mapping[str, float]:
    """Return the highest power of each accelerator, W, by `power.yaml`."""
    return _facts()["most"]


@cache
def busy_power() -> Mapping[str, Busy]:
    """Return the power of the accelerators whose kernels' power was measured."""
    return {
        gpu: Busy(**{phase: float(np.mean(list(kinds.values()))) for phase, kinds in phases.items()})
        for gpu, phases in _facts()["kernels"].items()
    }


def energy_note(found: Iterable[Basis | None]) -> list[str]:
    """Return the meanings of the figures on these bases."""
    known = set(found)
    return [meaning for basis, meaning in MEANING.items() if basis in known]


def written(value: float | None) -> str:
    """A number of any size in a table: three digits, or whole."""
    return MISSING if value is None else f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _covered_s(begin_s: np.ndarray, end_s: np.ndarray) -> float:
    """Seconds that lie in at least one of these spans: stages of a GPU wait for each other within their steps."""
    order = np.argsort(begin_s)
    begin_s, end_s = begin_s[order], end_s[order]
    before_s = np.concatenate([[-np.inf], np.maximum.accumulate(end_s)[:-1]]) if end_s.size else end_s
    return float(np.clip(end_s - np.maximum(begin_s, before_s), 0.0, None).sum())


def _product(watts: float | None, gpu_s: float | None) -> float | None:
    return None if watts is None or gpu_s is None else watts * gpu_s


def _facts() -> dict[str, Any]:
    return values(shipped_yaml(Path(__file__).with_name("power.yaml")))
