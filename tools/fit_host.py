"""Fit host times of text servers to public runs: `config_file.STEP_S` and others of `UNKNOWN`.

    python -m tools.fit_host CAMPAIGN CAMPAIGN ...

Each CAMPAIGN is a folder or file of measured runs. It prints errors with the present values, then of each campaign with
values fitted to the others, then the values fitted to all of them, and their errors.
"""

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import yaml
from scipy.optimize import least_squares

from engines.devices import host
from engines.devices.kernels import steps
from engines.models.config_file import REQUEST_S, STEP_S
from harness.measured_runs.calibrate import Load, Means, loads_of, means_of, workers
from harness.measured_runs.folder import read_runs
from harness.measured_runs.measured_run import CLIENT_S, LATENCIES, SummaryRun
from harness.measured_runs.predict import plan, serve
from workloads.errors import UserError

INFERENCE_PERF = "inference-perf"


class Unknown(NamedTuple):
    """One constant, which is not negative. `step`: of the numerical difference. `width`: standard deviation of its
    prior around the present value: wide, but for kernels, which were measured. [chosen]"""

    name: str
    present: float
    step: float
    width: float


UNKNOWN = [
    Unknown("STEP_S", STEP_S, 2e-4, 1e-3),
    Unknown("REQUEST_S", REQUEST_S, 3e-5, 1e-4),
    Unknown("API_SERVER_S_PER_REPLY", host.API_SERVER_S_PER_REPLY, 1e-4, 5e-4),
    Unknown("CLIENT_S", CLIENT_S[INFERENCE_PERF], 4e-3, 2e-2),
    Unknown("MHA_DECODES", host.MHA_DECODES, -0.08, 0.05),
    Unknown("FOUR_GPU_ALLREDUCE", host.FOUR_GPU_ALLREDUCE, 0.2, 0.1),
]
PRESENT = {each.name: each.present for each in UNKNOWN}
KERNELS = ("MHA_DECODES", "FOUR_GPU_ALLREDUCE")

FITTED = {"ttft": 0.1, "itl": 0.03}
"""Latencies that are fitted, and the relative errors from which on a load counts less and less. [chosen]"""


class Campaign(NamedTuple):
    name: str
    loads: list[Load]
    clients: list[bool]
    """Whether a load's client is inference-perf."""
    models: list[str]


def campaign_of(path: Path, folder: Path, gpu: str) -> Campaign:
    """Return the loads of a campaign below saturation, one experiment of each server and load."""
    loads: dict[Any, tuple[Load, bool, str]] = {}
    for run in read_runs(path):
        for load in loads_of(plan(run, folder, gpu, None), folder):
            if not load.saturated:
                kind = load.label
                if isinstance(run, SummaryRun):
                    kind = (run.server.model, run.server.tp, run.input_tokens, run.rates)
                loads.setdefault(kind, (load, run.tool == INFERENCE_PERF, run.server.model))
    return Campaign(path.name, *map(list, zip(*loads.values(), strict=True)))


def served(load: Load, client: bool, values: Mapping[str, float]) -> Means:
    """Serve a load with other values of the constants."""
    for name in KERNELS:
        setattr(steps, name, values[name])
    facts = yaml.safe_load(Path(load.deployment).read_text())
    facts["overheads"]["preprocess_s_per_reply"]["value"] = values["API_SERVER_S_PER_REPLY"]
    if client:
        facts["overheads"]["preprocess_s"]["value"] += values["CLIENT_S"] - CLIENT_S[INFERENCE_PERF]
    for stage in facts["stages"].values():
        stage["host"] = {
            "host_s": {"value": values["STEP_S"], "source": "fit_host"},
            "host_s_per_request": {"value": values["REQUEST_S"], "source": "fit_host"},
        }
    with TemporaryDirectory() as folder:
        path = Path(folder) / "deployment.yaml"
        path.write_text(yaml.safe_dump(facts))
        return means_of(load, serve(str(path), load.columns, load.prefixes, "measured", slots=load.slots)[0])


Served = Callable[[Campaign, Mapping[str, float]], list[Means]]


def logs(campaign: Campaign, means: Sequence[Means]) -> np.ndarray:
    """Return logarithms of predicted over measured, a row for each load and a column for each of LATENCIES."""
    return np.array(
        [
            [np.log(mean[name] / load.measured[name]) for name in LATENCIES]
            for load, mean in zip(campaign.loads, means, strict=True)
        ]
    )


def fit(errors: Sequence[np.ndarray], slopes: Sequence[np.ndarray]) -> dict[str, float]:
    """Return the values that fit these campaigns. `slopes`: by campaign, a load's logarithms by each constant."""
    columns = [LATENCIES.index(name) for name in FITTED]
    scales = np.array(list(FITTED.values()))
    off = np.concatenate([each[:, columns] / scales for each in errors])
    slope = np.concatenate([each[:, columns] / scales[:, None] for each in slopes])
    width = np.array([each.width for each in UNKNOWN])
    present = np.array([each.present for each in UNKNOWN])

    def residuals(x: np.ndarray) -> np.ndarray:
        here = (off + slope @ (x * width)).ravel()
        soft = np.sign(here) * np.sqrt(2 * (np.sqrt(1 + here**2) - 1))
        return np.concatenate([soft, x])

    found = least_squares(residuals, np.zeros(len(UNKNOWN)), bounds=(-present / width, np.inf)).x
    return {each.name: float(value) for each, value in zip(UNKNOWN, present + found * width, strict=True)}


def shown(name: str, errors: np.ndarray) -> str:
    ratios = np.expm1(errors)
    parts = (
        f"{each} {100 * np.abs(ratios[:, at]).mean():.1f} % ({100 * ratios[:, at].mean():+.1f})"
        for at, each in enumerate(LATENCIES)
    )
    return f"{name}: {len(errors)} loads, {', '.join(parts)}"


def said(values: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.3g}" for name, value in values.items())


def differences(campaign: Campaign, before: np.ndarray, run: Served) -> np.ndarray:
    """Return slopes: loads x LATENCIES x constants."""
    moved = [logs(campaign, run(campaign, PRESENT | {each.name: each.present + each.step})) for each in UNKNOWN]
    return np.stack([(after - before) / each.step for after, each in zip(moved, UNKNOWN, strict=True)], -1)


def lines(campaigns: Sequence[Campaign], run: Served) -> Iterator[str]:
    before = [logs(each, run(each, PRESENT)) for each in campaigns]
    yield f"Present: {said(PRESENT)}"
    yield from (shown(each.name, errors) for each, errors in zip(campaigns, before, strict=True))
    slopes = [differences(each, errors, run) for each, errors in zip(campaigns, before, strict=True)]
    for at, left_out in enumerate(campaigns):
        others = [index for index in range(len(campaigns)) if index != at]
        values = fit([before[index] for index in others], [slopes[index] for index in others])
        errors = logs(left_out, run(left_out, values))
        yield f"Left out: {shown(left_out.name, errors)}, with {said(values)}"
        for model in dict.fromkeys(left_out.models):
            yield f"  {shown(model, errors[[each == model for each in left_out.models]])}"
    values = fit(before, slopes)
    yield f"Fitted to all: {said(values)}"
    for campaign in campaigns:
        errors = logs(campaign, run(campaign, values))
        yield shown(campaign.name, errors)
        for load, each in zip(campaign.loads, np.expm1(errors), strict=True):
            yield f"  {load.label}: " + ", ".join(f"{100 * error:+.1f} %" for error in each)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("campaigns", type=Path, nargs="+")
    parser.add_argument("--gpu", default="h100", help="of runs that do not name theirs")
    given = parser.parse_args()
    with TemporaryDirectory() as name:
        folder = Path(name)
        try:
            campaigns = [campaign_of(path, folder, given.gpu) for path in given.campaigns]
        except UserError as error:
            parser.error(str(error))
        with workers(folder / "fit.log") as pool:
            for line in lines(campaigns, lambda campaign, values: served_all(pool, campaign, values)):
                print(line, flush=True)


def served_all(pool: Executor, campaign: Campaign, values: Mapping[str, float]) -> list[Means]:
    return list(pool.map(served, campaign.loads, campaign.clients, [values] * len(campaign.loads)))


if __name__ == "__main__":
    main()
