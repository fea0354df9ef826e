"""`rehearse profile`: measure how long steps take on a real device, and fit what virtual time replays with; or put such
a file together from kernels that others have measured, or fit factors to runs of a server."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from harness.clocks.ctrl_c import stopped
from harness.exit_status import FAULT
from reports.cli.output import tell, wide
from reports.cli.settings import flag, option
from reports.tables.plain_tables import Table, print_tables
from workloads.atomic_file import YAML_ENDINGS, check_output
from workloads.errors import UserError

if TYPE_CHECKING:
    from engines.devices.kernels.grids import HeldOut, Kernels
    from harness.measured_runs.measured_run import VoiceRun

NOTHING_WRITTEN = "Stopped; nothing was written."
NO_MODEL = "the model is missing; add --model NAME, or give runs of your server with --from."
SERVER_HEADER = """\
# The measured server, made by `rehearse profile --from RUNS`. More replicas: `gpus: [[0], [1]]`.
"""
MODEL_HEADER = """\
# The model of the measured server, made by `rehearse profile --from RUNS` of the config.json in the run's folder.
"""
KERNELS = "aiconfigurator"
"""The value of --from that is not a path."""


def profile(
    model: str | None = option(
        None,
        "Name of a deployment, or folder with a checkpoint; with --from also a model's name or file, by default as the "
        "runs say; of a server that speaks, the deployment that it resembles.",
        "M",
    ),
    device: str | None = option(None, "A real device: cpu or cuda."),
    source: str | None = option(
        None,
        "Instead of --device: aiconfigurator (measured kernels), or a file or folder of runs of your server.",
        "SOURCE",
        name="--from",
    ),
    gpu: str | None = option(None, "With --from: the GPU, such as h100."),
    tp: int | None = option(
        None, "With --from: GPUs of a replica; default: 1, or as the deployment or the runs say.", min=1
    ),
    out: Path | None = option(
        None, "Default: results/profiles/M-DEVICE.yaml, M-GPU.yaml, M-GPU-runs.yaml, or M-runs-server.yaml.", "FILE"
    ),
    quick: bool = flag("--quick", "A coarse grid, in about a minute."),
) -> None:
    """Measure step times on a real device and fit them, for `rehearse run --device virtual --profile FILE`.

    It takes minutes, on a machine that does nothing else. A page with pictures of the residuals is written next to the
    file. --from needs no device: aiconfigurator makes a profile of kernels that NVIDIA measured (package
    aiconfigurator-core); runs of your server at several rates, as rehearse live writes them or rehearse fidelity
    --measured-runs reads them, are fitted. Runs of a server that speaks are those of rehearse live.

    `rehearse profile --device cpu --model llama_tiny`

    `rehearse profile --device cuda --model /models/Llama-3.1-8B --out llama8b.yaml`

    `rehearse profile --from aiconfigurator --model llama_3_1_8b --gpu h100`

    `rehearse profile --from RUNS --gpu h100`

    `rehearse profile --from RUNS --model qwen3_omni_2gpu`
    """
    if source is not None and source != KERNELS and Path(source).exists():
        _from_runs(Path(source), model, gpu, tp, device, out)
        return
    if source is not None:
        _from_kernels(source, model, gpu, tp, device, out)
        return
    _measured(device, model, out, quick)


def _from_kernels(
    source: str, model: str | None, gpu: str | None, tp: int | None, device: str | None, out: Path | None
) -> None:
    from engines.deployments.export_kernels import kernels_for
    from engines.devices.kernels.grids import save_kernels

    if source != KERNELS:
        raise UserError(
            f"--from {source} is neither a file or folder of measured runs nor {KERNELS}; give one of them."
        )
    if model is None:
        raise UserError(NO_MODEL)
    if gpu is None:
        raise UserError("--from aiconfigurator lacks the GPU; add --gpu h100, or another.")
    _check_no_device(device, source)
    path = out or Path("results") / "profiles" / f"{Path(model).stem}-{gpu}{f'-tp{tp}' if tp else ''}.yaml"
    check_output(path, YAML_ENDINGS)
    kernels = kernels_for(model, gpu, tp)
    save_kernels(kernels, path)
    # Where the times of measured kernels are from, and how far off their grids are between points.
    command = f"rehearse run EXPERIMENT --set gpu={kernels.gpu} --profile {path}"
    title = f"{kernels.model}: {kernels.origin}"
    _present(title, _kernel_tables(kernels), {"profile": path, "next": command})


def _check_no_device(device: str | None, source: str) -> None:
    if device is not None:
        raise UserError(f"--device {device} measures here, and --from {source} reads; leave one of them out.")


def _from_runs(
    source: Path, model: str | None, gpu: str | None, tp: int | None, device: str | None, out: Path | None
) -> None:
    from engines.devices.profile import save_facts
    from engines.devices.step_file import save_calibrated
    from harness.measured_runs.calibrate import calibrate
    from harness.measured_runs.folder import text_and_voice
    from reports.calibration.factors import sentences, tables
    from reports.cli.progress import parts

    _check_no_device(device, str(source))
    if out is not None:
        check_output(out, YAML_ENDINGS)
    text, voice = text_and_voice(source)
    if text and voice:
        raise UserError(
            f"{source} has runs of text ({text[0].name}) and of speech ({voice[0].name}); give the runs of one server."
        )
    if voice:
        _from_voice(voice, model, gpu, tp, out)
        return
    with stopped(NOTHING_WRITTEN), parts() as show:
        calibration = calibrate(text, gpu, model, tp, show)
    made = calibration.profile
    path = out or Path("results") / "profiles" / f"{made.model}-{made.gpu}-runs.yaml"
    save_calibrated(made, path)
    server, facts = path.with_name(f"{path.stem}-server{path.suffix}"), calibration.deployment
    if calibration.model is not None:
        model_file = path.parent / "models" / f"{made.model}.yaml"
        save_facts(calibration.model, model_file, MODEL_HEADER)
        facts = {**facts, "model": str(model_file)}
    save_facts(facts, server, SERVER_HEADER)
    console = wide(150)
    print_tables(tables(calibration), console)
    tell(console, sentences(calibration))
    tell(console, ("", f"profile  {path}", f"server   {server}"))
    tell(console, [f"next     rehearse run EXPERIMENT --set deployment={server} --profile {path}"])


def _from_voice(runs: Sequence[VoiceRun], model: str | None, gpu: str | None, tp: int | None, out: Path | None) -> None:
    from engines.devices.profile import save_facts
    from harness.measured_runs.voice import fit_voice
    from reports.calibration.voice_factors import sentences, tables
    from reports.cli.progress import parts

    if tp is not None:
        raise UserError(f"--tp {tp} is for servers of text; the deployment of --model says the GPUs of each stage.")
    with stopped(NOTHING_WRITTEN), parts() as show:
        fit = fit_voice(runs, model, gpu, show)
    path = out or Path("results") / "profiles" / f"{Path(fit.base).stem}-runs-server.yaml"
    save_facts(fit.deployment, path, SERVER_HEADER)
    console = wide(150)
    print_tables(tables(fit), console)
    tell(console, sentences(fit))
    tell(console, ("", f"server   {path}", f"next     rehearse run EXPERIMENT --set deployment={path}"))


def _measured(device: str | None, model: str | None, out: Path | None, quick: bool) -> None:
    from engines.devices.profile import save_profile
    from harness.calibration import profiling
    from harness.replays.worker.fresh_process import FreshProcessFailed
    from reports.cli.progress import parts
    from reports.pages.profile_page import tables, write_profile_page

    if device is None:
        raise UserError(
            "a profile is measured on a real device; add --device cpu, or --from aiconfigurator --gpu h100."
        )
    if model is None:
        raise UserError(NO_MODEL)
    path = out or Path("results") / "profiles" / f"{Path(model).absolute().name}-{device}.yaml"
    if path.suffix not in (".yaml", ".yml"):
        raise UserError(f"--out {path} is not a YAML file; end its name in .yaml.")
    check_output(path, YAML_ENDINGS)
    folder = next(parent for parent in path.absolute().parents if parent.exists())
    if not (folder.is_dir() and os.access(folder, os.W_OK)):  # known before minutes of measuring
        raise UserError(f"--out {path} cannot be written: {folder} is not a writable folder; choose another.")
    try:
        with stopped(NOTHING_WRITTEN), parts() as show:
            measured = profiling.profile(device, model, quick, show)
    except FreshProcessFailed as error:
        typer.echo(f"rehearse: the measuring process failed: {error}", err=True)
        raise typer.Exit(FAULT) from None
    page = write_profile_page(measured.profile, measured.samples, path)
    save_profile(measured.profile, path)
    made = measured.profile
    files = {"profile": path, "pictures": page, "next": _next(model, path)}
    _present(f"{made.origin}, in {made.duration_s:.0f} s", tables(made), files)


def _next(model: str, path: Path) -> str:
    """A command that uses the profile."""
    from engines.deployments import load_deployment
    from harness.calibration.profiling import target

    params = target(model)
    checkpoint = f" --set checkpoint={params.checkpoint}" if params.checkpoint else ""
    speaks = load_deployment(params.deployment).speaks
    workload = "" if speaks else " --set workload=poisson --set reply=text --set p=0"
    served = f"--set deployment={params.deployment}{checkpoint}{workload}"
    return f"rehearse run bench {served} --device virtual --profile {path}"


def _present(title: str, tables: list[Table], files: dict[str, object]) -> None:
    """Print the file's content and how good it is, then its place and the command that uses it."""
    from rich.console import Console

    console = Console()
    console.print(f"{title}\n", highlight=False)
    print_tables(tables, console)
    tell(console, (f"{name:<9} {value}" for name, value in files.items()))


def _kernel_tables(kernels: Kernels) -> list[Table]:
    """Return a table of errors at points between the grids', and one of the grids' sources."""
    from harness.calibration.fidelity_report import percent

    def error(held_out: HeldOut | None) -> str:
        return "–" if held_out is None else f"{percent(held_out.median)} ({percent(held_out.worst)})"

    steps = ("decode", "prefill", "mixed")
    errors, sources = [], []
    for each in kernels.kernels:
        name = each.stage if each.gpus == 1 else f"{each.stage}, {each.gpus} GPUs"
        errors.append((name, *(error(each.held_out.get(step)) for step in steps)))
        for grid, source in each.sources.items():
            shares = percent(source.measured), percent(source.estimated)
            sources.append((name, grid, *shares, ", ".join(source.kernels) or "–"))
    of = "where the times are from; the rest stands between measured sizes"
    return [
        Table("whole steps between the grid's points: median error (worst)", ("stage", *steps), errors),
        Table(of, ("stage", "grid", "measured", "estimated", "kernels"), sources),
    ]
