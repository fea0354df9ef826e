"""`rehearse tune`: the offline sweep of a policy's weights, written to a result file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rehearsal.reports.cli.measuring import measure_points, show_points
from rehearsal.reports.cli.output import AsCsv, AsJson, Form, emit, form_of
from rehearsal.reports.cli.settings import DryRun, Settings, at_least, parse_settings
from rehearsal.workloads.errors import UserError, nearest

if TYPE_CHECKING:
    from rehearsal.engines.systems.liveserve.tuned import Tried


_WEIGHTS = ("_alpha", "_beta")
"""How the parameters end that the sweep varies."""


def tune(
    engine: Annotated[str, typer.Argument(help="Whose weights: liveserve.")],
    settings: Settings = [],  # noqa: B006  (typer copies it)
    seeds: Annotated[
        int, typer.Option("--seeds", metavar="N", parser=at_least(1), help="How many seeds.")
    ] = 3,
    first_seed: Annotated[
        int,
        typer.Option(
            "--first-seed", metavar="N", parser=at_least(0), help="The first of them, 1000 or more."
        ),
    ] = 1000,
    jobs: Annotated[
        int | None,
        typer.Option("--jobs", metavar="N", parser=at_least(1), help="Points at a time; default: the cores."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="Result file, or -; default: results/tuned/ENGINE.yaml."),
    ] = None,
    results: Annotated[
        Path | None,
        typer.Option("--results", metavar="DIR", help="Where points go; default: results/tune-ENGINE."),
    ] = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
) -> None:
    """Sweep LiveServe's weights alpha and beta on a mock workload, for each stage by itself, and write the best.

    The file holds every pair that was measured, the seeds and the revision. Copied to
    `engines/systems/liveserve/tuned.yaml` it is what LiveServe runs with. The same command again resumes.

    `rehearse tune liveserve`

    `rehearse tune liveserve --seeds 5 --set kv_pool_blocks=512 --out mine.yaml`
    """
    from rehearsal.harness import tuning
    from rehearsal.reports.cli.card_points import expanded
    from rehearsal.reports.source import local_jobs
    from rehearsal.workloads.files import STDOUT, YAML_ENDINGS, check_output

    form = form_of(as_json, as_csv)
    if engine != tuning.ENGINE:
        raise UserError(f"engine {engine!r} has no weights to tune.{nearest(engine, [tuning.ENGINE])}")
    if first_seed < tuning.FIRST_SEED:
        raise UserError(
            f"--first-seed {first_seed}: seeds below {tuning.FIRST_SEED} are those that figures are measured on; "
            f"weights are not tuned on them, give {tuning.FIRST_SEED} or more."
        )
    target = check_output(out or Path("results") / "tuned" / f"{engine}.yaml", YAML_ENDINGS)
    if target == STDOUT and form != "table":
        raise UserError(f"--out - and --{form} both go to standard output; leave one out.")
    at_a_time = local_jobs(jobs)
    mock = _mock(parse_settings(settings), first_seed)
    wanted = list(range(first_seed, first_seed + seeds))
    experiments = tuning.experiments(mock, wanted)
    owner, points = expanded(f"tune-{engine}", experiments)
    if dry_run and form != "table":
        show_points(points, form)
        return
    if dry_run:
        for point in points:
            pairs = ", ".join(f"{n}={v:g}" for n, v in point.engine_params.items() if n.endswith(_WEIGHTS))
            typer.echo(f"{point.id}  {pairs} seed={point.seed}")
        typer.echo(f"{len(points)} points")
        return
    folder = results or Path("results") / f"tune-{engine}"

    def present(_: list[dict[str, Any]]) -> None:
        _present(folder, target, mock, wanted, form)

    timeout_s = max(each.timeout_s for panels in experiments.values() for each in panels.values())
    failed = measure_points(owner, points, folder, at_a_time, timeout_s, present)
    raise typer.Exit(1 if failed else 0)


def _mock(settings: dict[str, str], seed: int) -> dict[str, Any]:
    """The mock workload with --set applied; UserError for what it has not, or what the sweep itself sets."""
    from rehearsal.harness import tuning
    from rehearsal.harness.experiment import CHOICES, parameters, parse_setting

    mock = dict(tuning.SETTINGS)
    known = parameters(next(iter(tuning.experiments(mock, [seed])["thinker"].values())))
    for name, text in settings.items():
        if name in CHOICES or name.endswith(_WEIGHTS):
            raise UserError(f"--set {name} would not leave the sweep what it is; leave it out.")
        if name not in known:
            raise UserError(f"unknown parameter {name!r} of the mock workload.{nearest(name, known)}")
        values = parse_setting(name, text)
        if len(values) != 1:
            raise UserError(
                f"--set {name} takes one value here, not {len(values)}; the sweep varies the weights only."
            )
        mock[name] = values[0]
    return mock


def _present(folder: Path, target: Path, mock: dict[str, Any], seeds: list[int], form: Form) -> None:
    """Judge what was measured, write the file, the picture beside it unless it is standard output, and the table."""
    import yaml
    from rich.console import Console

    from rehearsal.harness import tuning
    from rehearsal.harness.results import find_record, read_collection
    from rehearsal.reports.figures import tuning as picture
    from rehearsal.reports.figures.picture import Picture
    from rehearsal.reports.style import style
    from rehearsal.reports.svg import save
    from rehearsal.workloads.files import STDOUT, cannot_write, output

    stored = read_collection(folder).cards
    records = {
        stage: {ratio: _finished(folder, stored[stage][ratio].points, find_record) for ratio in tuning.RATIOS}
        for stage in tuning.STAGES
    }
    tried = tuning.judged(records)
    best = {stage: tuning.chosen(tried, stage) for stage in tuning.STAGES}
    console = Console(stderr=form != "table" or target == STDOUT)
    if form == "table":
        console.print(_table(tried, list(best.values())))
        for stage in tuning.STAGES:
            if same := tuning.undecided(tried, stage):
                console.print(
                    f"{stage}: the sweep does not decide between {', '.join(same)}: all cost the same."
                )
    else:
        emit(form, [{**each.model_dump(mode="json"), "chosen": each in best.values()} for each in tried])
    if not any(best.values()):
        return
    content = tuning.tuned(tried, mock, seeds).model_dump(mode="json")
    with output(target, make_folder=True) as file:
        file.write(yaml.safe_dump(content, sort_keys=False).encode())
    if target == STDOUT:
        return
    try:
        with style():
            drawn = picture.draw(tried, best)
            if isinstance(drawn, Picture):
                save(drawn, target.parent)
    except OSError as error:
        raise cannot_write(target.parent, error) from None
    for path in (target, target.parent / f"{picture.NAME}.svg"):
        console.print(str(path), highlight=False, soft_wrap=True)


def _finished(folder: Path, ids: list[str], find: Any) -> list[Any]:
    found = [find(folder / "points", id) for id in ids]
    return [record for record in found if record is not None and record.manifest["status"] == "ok"]


def _table(tried: list[Tried], best: list[Tried | None]) -> Any:
    from rich.table import Table

    from rehearsal.reports.columns import MISSING

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in ("stage", "alpha/beta", "wasted %", "KV stall s", "cost", "seeds", ""):
        table.add_column(heading, justify="left" if heading in ("stage", "") else "right")
    for each in tried:
        waste = MISSING if each.wasted_token_ratio is None else f"{100 * each.wasted_token_ratio:.2f}"
        stall = MISSING if each.kv_stall_s is None else f"{each.kv_stall_s:.2f}"
        cost = MISSING if each.cost is None else f"{each.cost:.3f}"
        mark = "chosen" if each in best else ""
        table.add_row(each.stage, each.ratio, waste, stall, cost, str(each.seeds), mark)
    return table
