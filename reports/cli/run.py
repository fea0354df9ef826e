"""`rehearse run`: expand an experiment, measure its missing points, show the table."""

from __future__ import annotations

from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.replays.executors.place import Place
from reports.cards.source import default_out, figures, resolve
from reports.cli import card_points
from reports.cli.claims import present_group
from reports.cli.completion import named, source_of
from reports.cli.measuring import check_new, measure_points, show_points
from reports.cli.output import AS_CSV, AS_JSON, COLUMNS, asked_metrics, form_of
from reports.cli.present import present
from reports.cli.settings import DRY_RUN, EXECUTOR, QUICK, SETTINGS, flag, number, option
from workloads.bounds import MOST_SEED
from workloads.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.experiments.experiment import Experiment
    from harness.experiments.grid import Traces
    from harness.experiments.point import Point
    from harness.records.results import Collection


def run(
    source: Annotated[str, source_of("A card, a group of figure cards, a YAML file, or a results directory.")],
    settings: list[str] = SETTINGS,
    seeds: int | None = number(None, "Use the seeds 0 to N-1."),
    device: str | None = option(None, "See `rehearse list devices`.", autocompletion=named("devices")),
    profile: Path | None = option(None, "Step times of `rehearse profile`, for the virtual device.", "FILE"),
    jobs: int | None = number(
        None, "Points at a time; default: the processor's cores, or the cluster's; one on the wall clock."
    ),
    out: Path | None = option(None, "Results directory; default: results/NAME or results/NAME-DEVICE.", "DIR"),
    shuffle: str | None = option(
        None,
        "Run the points in the order that this seed gives; default: as the experiment or the group has it.",
        "SEED|none",
    ),
    vllm: str | None = option(
        None,
        "Replay on the schedulers of these vLLMs: releases (source fetched once) or checkouts.",
        "RELEASE_OR_DIR,...",
    ),
    executor: str = EXECUTOR,
    quick: bool = QUICK,
    dry_run: bool = DRY_RUN,
    yes: bool = flag("--yes", "Take more than 100,000 points."),
    columns: str | None = COLUMNS,
    as_json: bool = AS_JSON,
    as_csv: bool = AS_CSV,
) -> None:
    """Measure every point of an experiment, each in a fresh worker, then show the table and write the report.

    The same command again resumes: finished points are kept, failed ones run again. --device cpu executes small models.
    --vllm replays on the schedulers of several releases. --dry-run --json prints every parameter of every point.

    `rehearse run bench --quick`

    `rehearse run bench --set c=16 --set p=0,0.7 --set engine=liveserve --seeds 5`

    `rehearse run liveserve --quick`

    `rehearse run my_experiment.yaml --jobs 4 --dry-run`

    `rehearse run bench --quick --columns p50,p95,p99,continuity`

    `rehearse run bench --quick --vllm 0.32.0,0.33.0`

    `rehearse run bench --device cpu --set c=4`

    `rehearse run results/bench-cpu --device virtual`

    `rehearse run bench --executor ray://head:10001`
    """
    from harness.by_device import expand
    from harness.experiments.experiment import Experiment
    from harness.experiments.grid import MOST_POINTS, Traces
    from harness.experiments.settings import read_settings
    from harness.replays.worker import fork_server, vllm_release

    form, asked = form_of(as_json, as_csv), asked_metrics(columns)
    if vllm is not None:
        settings = [*settings, f"vllm={','.join(vllm_release.release_of(each) for each in vllm.split(','))}"]
    place = Place(executor)
    cards = figures(source)
    for name, value in (("--columns", asked), ("--profile", profile)):
        if cards and value:
            raise UserError(f"{name} is for one experiment, not for figure cards; leave it out.")
    seed = order_seed(shuffle, cards[0].order_seed if cards else None)
    owner: Experiment | Collection

    def begins(target: Path) -> bool:
        """Return whether workers will be needed here for certain."""
        return place.local and not dry_run and not (target / "summary.json").exists()

    if cards:
        from reports.cards.unmeasured import check_claims

        experiments = card_points.asked(cards, read_settings(settings), seeds, device, quick)
        for card in cards:
            if card.name in experiments:
                check_claims(card)
        owner, points = card_points.expanded(cards[0].group, experiments)
        target = out or card_points.default_out(owner.name, quick)
    else:
        owner, traces = resolve(source, settings, seeds, device, quick, profile), Traces()
        target = out or default_out(source, owner.name, owner.device)
        if begins(target) and owner.device == "virtual":
            fork_server.start()
        points = expand(owner, traces, inf if yes else MOST_POINTS)
        if (short := _never_on_line(points, traces)) is not None:
            typer.echo(short, err=True)
        if (capped := _capped(owner)) is not None:
            typer.echo(capped, err=True)
        if owner.device == "live" and not dry_run:
            check_new(target)
    from reports.cli.workers import points_at_a_time, side_of

    if dry_run:
        from harness.experiments.run_order import shuffled

        if not place.local:
            place.check(points)
        points_at_a_time({point.device for point in points}, jobs, place)  # says what cannot be
        show_points(points if seed is None else shuffled(points, seed).points, form)
        return

    def show() -> None:
        from reports.runs.measured import load_run

        if isinstance(owner, Experiment):
            present(load_run(target, owner), form, asked)
        else:
            present_group(target, list(owner.cards), form)

    if begins(target):  # while the workers' server imports vLLM on another core
        import matplotlib.pyplot  # noqa: F401, I001
        import reports.pages.html  # noqa: F401
    side = side_of(points, jobs, place)
    raise typer.Exit(measure_points(owner, points, target, side, show, seed))


def order_seed(text: str | None, default: int | None) -> int | None:
    """The seed that --shuffle gives, or None for the order of the experiment; `default` where it is not given."""
    if text is None:
        return default
    if text == "none":
        return None
    if not text.isdecimal() or len(text) > len(str(MOST_SEED)) or int(text) > MOST_SEED:
        raise UserError(f"--shuffle {text}: give a seed, a whole number from 0 to {MOST_SEED}, or none.")
    return int(text)


def _capped(experiment: Experiment) -> str | None:
    """Return a warning if a closed loop plays a file that records its own times."""
    from workloads.registry import WORKLOADS
    from workloads.replays.replay import ReplayParams

    recorded = issubclass(WORKLOADS[experiment.workload].Params, ReplayParams)
    if not recorded or ("c" not in experiment.grid and experiment.set.get("c") is None):
        return None
    return (
        "c limits the sessions of the file that are served at once; --set c=null, or rehearse replay FILE, plays every "
        "request at its recorded time."
    )


def _never_on_line(points: Sequence[Point], traces: Traces) -> str | None:
    """Return a warning if a closed loop keeps more sessions than its trace has, so that it never reaches that
    number."""
    by_hash = {trace.header.hash: int((trace.columns()["turn"] == 0).sum()) for trace in traces.values()}
    short = {
        (c, sessions, "sessions" in point.params)
        for point in points
        if point.device != "live"
        and (c := int(str(point.client_params["c"] or 0))) > (sessions := by_hash.get(point.trace_hash, c))
    }
    if not short:
        return None
    c, sessions, settable = max(short)
    more = f"sessions={c}, or " if settable else ""  # a recorded trace has the sessions of its file
    return f"c={c} and {sessions} sessions: {c} sessions are never concurrent; set {more}a smaller c."
