"""`rehearse fidelity`: one trace twice on a real device and once in virtual time. Mechanics, prediction and noise are
reported apart. With `--measured-runs`: runs of other servers, predicted."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from harness.exit_status import FAIL, OK, UNDECIDED
from reports.cli.output import tell, wide
from reports.cli.settings import flag, option
from reports.tables.plain_tables import grid, print_tables
from workloads.errors import UserError

if TYPE_CHECKING:
    from harness.calibration.fidelity_report import Report

_STYLES = {"pass": "green", "fail": "bold red", "miss": "yellow", "void": "yellow"}


def fidelity(
    device: str | None = option(None, "A real device: cpu or cuda."),
    measured_runs: Path | None = option(None, "Runs of real servers to predict, instead of --device.", "PATH"),
    gpu: str | None = option(None, "With --measured-runs: GPU of runs that do not name one; default: h100."),
    model: str | None = option(None, "With --measured-runs: name or file of the model, instead of the runs' own.", "M"),
    step_times: str | None = option(None, "With --measured-runs: measured (default) or roofline."),
    deployment: str = option("llama_tiny", "Deployment with one stage that answers in text."),
    profile: Path | None = option(None, "Also predict with this profile.", "FILE"),
    out: Path | None = option(
        None, "Default: results/fidelity/DEVICE, which reports show, or results/measured_runs.", "DIR"
    ),
    quick: bool = flag("--quick", "Short runs at one load."),
) -> None:
    """Compare virtual time with real execution, or with measured runs.

    With --device, one trace runs twice on the device and once in virtual time, at 70 and 100 % of capacity. Virtual
    time with the real run's own step costs is judged strictly. A prediction is void where the machine itself moved by
    more than 10 %. The exit status is 1 when the judged comparison fails.

    With --measured-runs, every request of the runs is replayed with its arrival and lengths. PATH is a file or a
    folder: OpenTelemetry traces of vLLM, results of guidellm, aiperf and vLLM's bench, tables of experiments. A run
    that cannot be predicted is skipped with the reason, and the exit status is 3.

    `rehearse fidelity --device cpu`

    `rehearse fidelity --device cuda --profile llama_tiny-cuda.yaml`

    `rehearse fidelity --measured-runs my-runs/ --gpu h200`
    """
    if measured_runs is not None:
        if device is not None:
            raise UserError(
                f"--device {device} executes on this machine, and --measured-runs reads files; leave one out."
            )
        _predicted(
            measured_runs, gpu or "h100", model, step_times or "measured", out or Path("results") / "measured_runs"
        )
        return
    for name, value in (("--gpu", gpu), ("--model", model), ("--step-times", step_times)):
        if value is not None:
            raise UserError(f"{name} {value} is for --measured-runs PATH; leave it out.")
    if device is None:
        raise UserError(
            "fidelity compares with something real; add --device cpu, or --measured-runs PATH with runs of a server."
        )
    from harness.calibration import fidelity as module
    from reports.calibration.fidelity import write_picture

    folder = out or Path("results") / "fidelity" / device
    report = module.fidelity(device, deployment, profile, folder, quick, _show)
    picture = write_picture(folder)
    present(report)
    typer.echo(f"picture  {picture}\nreport   {folder / 'fidelity.json'}")
    raise typer.Exit(OK if report.passed else FAIL)


def _predicted(folder: Path, gpu: str, model: str | None, step_times: str, out: Path) -> None:
    from engines.devices.host import CALIBRATED_ON
    from harness.measured_runs.folder import read_runs
    from harness.measured_runs.predict import predict
    from harness.measured_runs.runs_report import report_of, store
    from reports.calibration.measured_runs import sentences, tables, write_picture
    from reports.cli.progress import parts

    if step_times not in ("measured", "roofline"):
        raise UserError(f"--step-times {step_times} is neither measured nor roofline; write one of them.")
    runs = read_runs(folder)
    with parts() as show:
        predictions, failed = predict(runs, out, gpu, model, step_times, show)
    for each in failed:
        failure = f"failed: {each.run}: {each.reason}; see {each.log}"
        typer.echo(failure if each.log else f"skipped: {each.reason}", err=True)
    if not predictions:
        raise typer.Exit(UNDECIDED)
    report = report_of(predictions, failed, CALIBRATED_ON)
    store(report, predictions, out)
    picture = write_picture(report, out)
    console = wide(150)
    print_tables(tables(report), console)
    tell(console, sentences(report))
    typer.echo(f"\npicture  {picture}\nreport   {out / 'measured_runs.json'}")
    raise typer.Exit(UNDECIDED if failed else OK)


def _show(what: str, done: int, total: int) -> None:
    typer.echo(f"{what}: {done} of {total} done", err=True)


def present(report: Report) -> None:
    """Print the table and the reason of each verdict."""
    from rich.box import SIMPLE_HEAD
    from rich.text import Text

    from reports.calibration.fidelity import HEADINGS, rows

    console = wide(150)
    console.print(
        f"{report.model} on {report.device} ({report.machine['cpu']}, {report.machine['cores']} cores), "
        f"capacity {report.capacity:.1f} requests/s, in {report.duration_s:.0f} s",
        highlight=False,
    )
    table = grid(("load", "what", *HEADINGS, "verdict"), (), 2, box=SIMPLE_HEAD)
    table.columns[-1].justify = "left"
    last = ""
    for row in rows(report):
        if last and row.load != last:
            table.add_section()
        verdict = Text(row.verdict, _STYLES.get(row.verdict, ""))
        table.add_row(row.load if row.load != last else "", row.what, *row.values, verdict)
        last = row.load
    console.print(table)
    for load in report.loads:
        at = f"{100 * load.share:.0f} % load"
        tell(console, (f"{at}, {name} {each.result}: {each.why}" for name, each in load.verdicts.items()))
        late = max(run.late_p90_s for run in load.runs)
        canary = max(run.canary.spread for run in load.runs)
        machine = (
            f"{at}, the machine: canary {100 * (load.canary_moved - 1):+.1f} % between the runs, up to "
            f"{100 * canary:.0f} % within one; requests up to {1e3 * late:.1f} ms late in the queue (P90)"
        )
        tell(console, [machine])
