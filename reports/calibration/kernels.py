"""A file of measured kernels for people: where its times are from, and how far off its grids are between points."""

from pathlib import Path

from engines.devices.kernels.grids import HeldOut, Kernels, StageKernels
from harness.calibration.agreement import percent
from reports.tables.plain_tables import Table, print_tables


def tables(kernels: Kernels) -> list[Table]:
    """One of errors at points that no grid has, one of where the grids are from."""
    errors = [
        (_name(each), *(_error(each.held_out.get(step)) for step in ("decode", "prefill", "mixed")))
        for each in kernels.kernels
    ]
    sources = [
        (
            _name(each),
            grid,
            percent(source.measured),
            percent(source.estimated),
            ", ".join(source.kernels) or "–",
        )
        for each in kernels.kernels
        for grid, source in each.sources.items()
    ]
    headings = ("stage", "decode", "prefill", "mixed")
    return [
        Table("whole steps between the grid's points: median error (worst)", headings, errors),
        Table(
            "where the times are from; the rest stands between measured sizes",
            ("stage", "grid", "measured", "estimated", "kernels"),
            sources,
        ),
    ]


def present(kernels: Kernels, path: Path) -> None:
    from rich.console import Console

    console = Console()
    console.print(f"{kernels.model}: {kernels.origin}\n", highlight=False)
    print_tables(tables(kernels), console)
    console.print(f"profile   {path}", highlight=False, soft_wrap=True)
    console.print(
        f"next      rehearse run EXPERIMENT --set gpu={kernels.gpu} --profile {path}",
        highlight=False,
        soft_wrap=True,
    )


def _name(stage: StageKernels) -> str:
    return stage.stage if stage.gpus == 1 else f"{stage.stage}, {stage.gpus} GPUs"


def _error(held_out: HeldOut | None) -> str:
    return "–" if held_out is None else f"{percent(held_out.median)} ({percent(held_out.worst)})"
