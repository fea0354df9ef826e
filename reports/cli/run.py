"""`rehearse run`: expand an experiment, measure what is not measured yet, show the table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from rehearsal.harness.executors.place import Place
from rehearsal.reports.cli import card_points
from rehearsal.reports.cli.claims import present_group
from rehearsal.reports.cli.listing import named
from rehearsal.reports.cli.measuring import measure_points, show_points
from rehearsal.reports.cli.output import AsCsv, AsJson, Columns, asked_metrics, form_of
from rehearsal.reports.cli.report import present
from rehearsal.reports.cli.settings import (
    DryRun,
    ExecutorName,
    Partition,
    Sbatch,
    Settings,
    at_least,
    order_seed,
    parse_settings,
    sbatch_options,
)
from rehearsal.reports.source import default_out, figures, points_at_a_time, resolve
from rehearsal.workloads.errors import UserError


def run(
    source: Annotated[
        str,
        typer.Argument(
            metavar="CARD_YAML_OR_DIR",
            help="A card, a group of figure cards, a YAML file, or a results directory.",
            autocompletion=named("cards"),
        ),
    ],
    settings: Settings = [],  # noqa: B006  (typer copies it)
    seeds: Annotated[
        int | None,
        typer.Option("--seeds", metavar="N", parser=at_least(1), help="Use the seeds 0 to N-1."),
    ] = None,
    device: Annotated[
        str | None,
        typer.Option("--device", help="See `rehearse list devices`.", autocompletion=named("devices")),
    ] = None,
    profile: Annotated[
        Path | None,
        typer.Option(
            "--profile", metavar="FILE", help="Step times of `rehearse profile`, for the virtual device."
        ),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(
            "--jobs",
            metavar="N",
            parser=at_least(1),
            help="Points at a time; default: the processor's cores, or the cluster's; one on the wall clock.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="DIR", help="Results directory; default: results/NAME or results/NAME-DEVICE."
        ),
    ] = None,
    shuffle: Annotated[
        str | None,
        typer.Option(
            "--shuffle",
            metavar="SEED|none",
            help="Run the points in the order that this seed gives; default: as the experiment or the group has it.",
        ),
    ] = None,
    vllm: Annotated[
        str | None,
        typer.Option(
            "--vllm",
            metavar="RELEASE_OR_DIR,...",
            help="Replay on the schedulers of these vLLMs: releases, whose source is fetched once, or checkouts.",
        ),
    ] = None,
    executor: ExecutorName = "local",
    partition: Partition = None,
    sbatch: Sbatch = [],  # noqa: B006  (typer copies it)
    quick: Annotated[bool, typer.Option("--quick", help="The card's small version, on one seed.")] = False,
    dry_run: DryRun = False,
    columns: Columns = None,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
) -> None:
    """Measure every point of an experiment, each in a fresh worker, then show the table and write the report.

    The same command again resumes: finished points are not repeated, failed ones are tried again.

    `rehearse run bench --quick`

    `rehearse run bench --set c=16 --set p=0,0.7 --set engine=liveserve --seeds 5`

    `rehearse run bench --set u2_mode=yielding,work_conserving --out results/u2`

    `rehearse run liveserve --quick` measures every figure of a paper in small, and checks its claims

    `rehearse run my_experiment.yaml --jobs 4 --dry-run`; `--dry-run --json` has every parameter of every point

    `rehearse run bench --quick --vllm 0.32.0,0.33.0` on the schedulers of two releases, kernels aside

    `rehearse run bench --executor ray://head:10001` on the nodes of a Ray cluster

    `rehearse run bench --executor slurm --partition cpu --sbatch time=60` as a job array of Slurm

    `rehearse run my_experiment.yaml --shuffle 7` in an order that the seed gives, kept with every record

    `rehearse run bench --device cpu --set c=4` really executes small models, in the card's settings for that

    `rehearse run bench --quick --columns p50,p95,p99,continuity` shows other metrics

    `rehearse run results/bench-cpu --device virtual` runs the same experiment on the modelled device

    `rehearse run results/bench-cpu --device virtual --profile results/profiles/speech_tiny-cpu.yaml`
    """
    from rehearsal.harness import vllm_release
    from rehearsal.harness.experiment import Experiment, Traces, expand, never_on_line

    form = form_of(as_json, as_csv)
    asked = asked_metrics(columns)
    chosen_settings = parse_settings(settings)
    if vllm is not None:
        chosen_settings["vllm"] = ",".join(vllm_release.release_of(each) for each in vllm.split(","))
    place = Place(executor, sbatch_options(partition, sbatch))
    found = figures(source)
    if found and asked:
        raise UserError("--columns is for the table of one experiment, not for figure cards; leave it out.")
    seed = order_seed(shuffle, found[0].order_seed if found else None)
    if found and profile is None:
        experiments = card_points.asked(found, chosen_settings, seeds, device, quick)
        owner, points = card_points.expanded(found[0].group, experiments)
        timeout_s = max(each.timeout_s for panels in experiments.values() for each in panels.values())
        target, at_a_time = (
            out or card_points.default_out(owner.name, quick),
            points_at_a_time(points, jobs, place),
        )
    elif found:
        raise UserError("--profile is for one experiment, not for figure cards; leave it out.")
    else:
        owner = resolve(source, chosen_settings, seeds, device, quick, profile)
        traces: Traces = {}
        points, timeout_s = expand(owner, traces), owner.timeout_s
        if (short := never_on_line(points, traces)) is not None:
            typer.echo(short, err=True)
        target, at_a_time = out or default_out(source, owner), points_at_a_time(points, jobs, place)
    if dry_run:
        from rehearsal.harness.order import shuffled

        show_points(shuffled(points, seed).points, form)
        return

    def show(rows: list[dict[str, Any]]) -> None:
        if isinstance(owner, Experiment):
            present(owner, rows, target, form, asked)
        else:
            present_group(target, list(owner.cards), form)

    failed = measure_points(owner, points, target, at_a_time, timeout_s, show, seed, place=place)
    raise typer.Exit(1 if failed else 0)
