"""A profile of a server by its measured runs: some loads are fitted, the others held out.

Every other load below saturation, in order of rate, is fitted.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from engines.deployments import Deployment
from engines.devices.calibrated import Calibrated
from engines.devices.hardware import load_gpu
from engines.server import ServerParams, resolve
from harness.measured_runs.factor_search import Search, Show, workers
from harness.measured_runs.loads import Load, Means, loads_of
from harness.measured_runs.measured_run import MeasuredRun, SummaryRun
from harness.measured_runs.predict import DEPLOYMENT, LOG, Planned, plan
from workloads.errors import UserError


@dataclass(frozen=True)
class Row:
    """A load with its means before and after the fit."""

    load: Load
    before: Means
    after: Means


@dataclass(frozen=True)
class Calibration:
    """A calibration. `saturated`: loads that are neither fitted nor held out."""

    profile: Calibrated
    held_out: list[Row]
    fitted: list[Row]
    saturated: list[Load]


def calibrate(
    runs: Sequence[MeasuredRun | SummaryRun],
    gpu: str | None,
    model: str | None = None,
    tp: int | None = None,
    show: Show = lambda what, done, total: None,
) -> Calibration:
    """Fit a profile to measured runs. `gpu`: of runs that do not name theirs; `model`, `tp`: instead of the runs' own.
    UserError where they are of several servers, or cannot determine the factors."""
    if tp is not None:
        runs = [replace(run, server=replace(run.server, tp=tp)) for run in runs]
    if gpu is not None:
        load_gpu(gpu)
    elif silent := [run.name for run in runs if run.server.gpu is None]:
        raise UserError(f"{silent[0]} does not say on which GPU it ran; add --gpu h100, or another.")
    with TemporaryDirectory() as name:
        folder = Path(name)
        planned = [plan(run, folder, gpu or "h100", model) for run in runs]
        deployment = _one_server(planned, folder)
        loads = [load for each in planned for load in loads_of(each, folder)]
        loads.sort(key=lambda load: load.rate)
        below = [load for load in loads if not load.saturated]
        if len(below) < 2:
            raise UserError(_too_few(loads, below))
        with workers(folder / LOG) as pool:
            profile, before, after = Search(below, deployment, pool, show).profile(_label(runs))
        rows = [Row(*each) for each in zip(below, before, after, strict=True)]
        return Calibration(profile, rows[1::2], rows[::2], [each for each in loads if each.saturated])


def _one_server(planned: Sequence[Planned], folder: Path) -> Deployment:
    found: dict[tuple[str, str, int], Deployment] = {}
    for each in planned:
        if (folder / each.run.name / "model.yaml").exists():
            raise UserError(
                f"{each.run.name} has its model's config.json; make a file of it with `rehearse model config.json` and "
                "add --model FILE, by which later runs name the same model."
            )
        deployment = resolve(ServerParams.of({"deployment": str(folder / each.run.name / DEPLOYMENT)}))
        (stage,) = deployment.stages.values()
        found.setdefault((deployment.model.name, deployment.gpu.name, stage.split), deployment)
    if len(found) > 1:
        names = "; ".join(f"{model} on {split} {gpu}" for model, gpu, split in found)
        raise UserError(f"these runs are of several servers ({names}); give the runs of one server.")
    return next(iter(found.values()))


def _too_few(loads: Sequence[Load], below: Sequence[Load]) -> str:
    more = "measure at least two rates that the server keeps up with"
    if len(loads) < 2:
        only = loads[0].label if loads else "of one request"
        return f"one load ({only}) cannot tell the factors of a server from one another; {more}."
    if not below:
        return (
            f"all {len(loads)} loads are saturated, which tells nothing but the server's throughput; {more}."
        )
    return f"of {len(loads)} loads only one ({below[0].label}) is below saturation; {more}."


def _label(runs: Sequence[MeasuredRun | SummaryRun]) -> str:
    names = list(dict.fromkeys(run.server.label or run.name for run in runs))
    said = names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
    releases = dict.fromkeys(run.server.vllm for run in runs if run.server.vllm)
    return f"{said} (vLLM {', '.join(releases)})" if releases else said
