"""Profile a deployment on a real device, in a process of its own that has served nothing and ends with it."""

import asyncio
import gc
import os
import tempfile
import time
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd

from engines.deployments import deployment_names
from engines.deployments.available import check
from engines.devices.profile import Profile, Reaction, StageProfile
from engines.server import ResolvedServer, ServerParams, resolve
from harness.calibration.fit import Sample, TooFewSteps, fit_stage, predict, undisturbed
from harness.experiments.provenance import environment
from harness.replays.worker.fresh_process import Show, in_fresh_process
from workloads.devices import REAL_DEVICES
from workloads.errors import UserError, nearest

TEXT_DEPLOYMENT = "llama_tiny"
"""The deployment whose limits apply when a checkpoint folder is measured."""

REPEATS, LIMIT_S = {False: 12, True: 3}, {False: 420.0, True: 60.0}
"""Repeats of the grid, and seconds after which no new group of cells begins (over all stages). Both are keyed by
--quick, and keep a run under ten minutes, starts included."""


@dataclass(frozen=True)
class Measured:
    """A profile and the steps behind it: `samples` has one row a step, for pictures and for other fits."""

    profile: Profile
    samples: pd.DataFrame


def target(model: str) -> ServerParams:
    """Return the parameters that --model stands for: of a deployment by its name, or of a checkpoint folder. UserError
    for anything else."""
    if model in deployment_names():
        return ServerParams.model_validate({"deployment": model})
    if Path(model).is_dir():
        return ServerParams.model_validate({"deployment": TEXT_DEPLOYMENT, "checkpoint": model})
    raise UserError(
        f"--model {model} is neither a deployment nor a folder with a checkpoint.{nearest(model, deployment_names())}"
    )


def profile(device: str, model: str, quick: bool, show: Show) -> Measured:
    """Measure and fit every stage of `model` that keeps a KV cache. UserError when the device cannot run it on this
    machine, or when too few steps fit into the time for a fit."""
    if device not in REAL_DEVICES:
        raise UserError(
            f"device {device!r} cannot be profiled: only real execution can be measured; "
            f"use --device {' or --device '.join(REAL_DEVICES)}."
        )
    params = target(model)
    check(device, resolve(params))
    # One core a replica: the virtual clock knows of one queue for each device.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")
    with tempfile.TemporaryDirectory(prefix="rehearse-profile-") as folder:
        return in_fresh_process(Path(folder) / "log.txt", measure, device, params, quick, show=show)


def measure(device: str, params: ServerParams, quick: bool, show: Show, seed: int = 0) -> Measured:
    """Measure the stages, in a process for this alone; `device` may be virtual here."""
    from harness.clocks import clock

    begun = time.perf_counter()
    deployment = resolve(params)
    show("loading the model", 0, 1)
    measurements = clock.run(_measure_stages(device, params, quick, show, seed), virtual=device == "virtual")
    stages: dict[str, StageProfile] = {}
    tables = []
    for name, (samples, reactions) in measurements.items():
        try:
            stages[name] = fit_stage(samples, reactions)
        except (TooFewSteps, ValueError) as error:
            raise UserError(
                f"stage {name} of {params.deployment} could not be profiled: {error}; "
                "profile a smaller deployment, or use a quiet machine."
            ) from None
        tables.append(_table(name, samples, stages[name]))
    facts = environment()
    made = Profile(
        model=deployment.model.name,
        device=device,
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        machine={name: value for name, value in facts["machine"].items() if name != "os"} | _accelerator(device),
        packages=facts["packages"],
        duration_s=round(time.perf_counter() - begun, 1),
        stages=stages,
    )
    return Measured(made, pd.concat(tables, ignore_index=True))


async def _measure_stages(
    device: str, params: ServerParams, quick: bool, show: Show, seed: int
) -> dict[str, tuple[list[Sample], list[Reaction]]]:
    from engines.builder import Parts
    from engines.core import vllm_adapter
    from engines.devices.stage import VirtualStage
    from engines.devices.watched import Canary
    from engines.registry import ENGINES
    from harness.calibration.grid import Driver, GridRun, grid, limits_of, react, reaction_shapes
    from harness.events.log import EventLog

    loop = asyncio.get_running_loop()
    vllm_adapter.use_clock(loop.time)
    system = ENGINES["vllm_omni"]
    server = system.build(Parts(ResolvedServer.of(params), EventLog(), seed, device), system.read({}))
    server.warm_up()
    gc.collect()
    gc.freeze()
    gc.disable()
    deployment = server.gateway.deployment
    engines = {e.stage: e for e in server.engines if not e.replica.stage.modelled and e.index == 0}
    measurements: dict[str, tuple[list[Sample], list[Reaction]]] = {}
    for index, (name, engine) in enumerate(engines.items()):
        stage = deployment.stages[name]
        limits = limits_of(engine, stage.max_model_len)
        cells = grid(limits, quick)
        total, done = REPEATS[quick] * len(cells), 0

        def group_done(name: str = name, total: int = total) -> None:
            nonlocal done
            done += 1
            show(f"measuring {name}", done, total)

        virtual = isinstance(engine.device, VirtualStage)
        # A modelled device does not drift.
        canary = (lambda: 1.0) if virtual else Canary(stage.decoder.weight_bytes, device).run

        def skip(on: bool, runs: Any = None if virtual else engine.device) -> None:
            if runs is not None:
                runs.executor.skip_forward = on

        driver = Driver(server, engine, skip, seed + index)
        run = GridRun(driver, canary, group_done)
        until_s = loop.time() + (LIMIT_S[quick] - loop.time()) / (len(engines) - index)
        show(f"measuring {name}", 0, total)
        await driver.run(run.measure(cells, REPEATS[quick], until_s))
        show(f"interrupting {name}", 0, 1)
        reactions: list[Reaction] = []
        await driver.run(react(driver, reaction_shapes(limits), stage.decoder.layers, reactions))
        show(f"interrupting {name}", 1, 1)
        measurements[name] = run.samples, reactions
    server.close()
    return measurements


def _accelerator(device: str) -> dict[str, Any]:
    if device != "cuda":
        return {}
    import torch

    return {"accelerator": torch.cuda.get_device_name()}


def _table(stage: str, samples: list[Sample], fitted: StageProfile) -> pd.DataFrame:
    """Return one row a step. Columns: stage, cell (a number), content of the step, kept (it was fitted), and in s:
    measured, each form's prediction, time, canary."""
    cells = {cell: number for number, cell in enumerate(dict.fromkeys(sample.cell for sample in samples))}
    table = pd.DataFrame([asdict(sample.totals) for sample in samples])
    table.insert(0, "stage", stage)
    table.insert(1, "cell", [cells[sample.cell] for sample in samples])
    chunks: list[Any] = [sample.cell[1] for sample in samples]  # type: ignore[index]
    table["prefill_tokens"] = [chunk.tokens if chunk else 0 for chunk in chunks]
    kept = {id(sample) for sample in undisturbed(samples)}
    table["kept"] = [id(sample) in kept for sample in samples]
    table["measured_s"] = [sample.seconds for sample in samples]
    for form, fit in fitted.forms.items():
        table[f"{form}_s"] = predict(samples, fit.coefficients)
    table["at_s"] = [sample.at_s for sample in samples]
    table["canary_s"] = [sample.canary_s for sample in samples]
    return table
