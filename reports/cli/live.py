"""`rehearse live`: call an endpoint that runs already, ours or anybody's, and see how many calls it holds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from reports.cli.settings import Settings, at_least, parse_settings
from workloads.errors import UserError

if TYPE_CHECKING:
    from harness.experiment import Experiment
    from harness.live.capacity import Knee, Step, Target


def live(
    url: Annotated[
        str, typer.Argument(metavar="URL", help="ws(s):// realtime, or http(s):// chat completions.")
    ],
    dialect: Annotated[
        str, typer.Option("--dialect", help="auto, openai, vllm_omni, vllm, rehearsal or text.")
    ] = "auto",
    audio: Annotated[
        Path | None, typer.Option("--audio", metavar="DIR", help="What users say; default: synthetic speech.")
    ] = None,
    sessions: Annotated[
        str | None,
        typer.Option(
            "--sessions", metavar="N[,N...]", help="Calls on line at once, all the time; default: 8."
        ),
    ] = None,
    rate: Annotated[
        str | None,
        typer.Option(
            "--rate", metavar="R[,R...]", help="Calls that come per second instead, in an open loop."
        ),
    ] = None,
    duration: Annotated[
        float, typer.Option("--duration", metavar="SECONDS", help="No turn begins after it.")
    ] = 60,
    settings: Settings = [],  # noqa: B006  (typer copies it)
    repeats: Annotated[
        int | None,
        typer.Option(
            "--repeats",
            metavar="N",
            parser=at_least(1),
            help="Runs of each, each with users of its own; default: 1; 3 with --find.",
        ),
    ] = None,
    find: Annotated[
        str | None,
        typer.Option(
            "--find", metavar="TARGETS", help='Largest number of calls with "ttfp_p90<=1 continuity>=0.95".'
        ),
    ] = None,
    up_to: Annotated[
        int | None,
        typer.Option("--up-to", metavar="N", parser=at_least(1), help="Where --find stops; default: 256."),
    ] = None,
    shards: Annotated[
        int | None, typer.Option("--shards", metavar="P", parser=at_least(1), help="Processes that call.")
    ] = None,
    scrape: Annotated[
        str | None,
        typer.Option("--scrape", metavar="URL", help="Prometheus metrics of the server, kept over time."),
    ] = None,
    token_env: Annotated[
        str | None,
        typer.Option(
            "--token-env",
            metavar="NAME",
            help="Environment variable with the token or key; it is stored nowhere.",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Results directory; default: results/live.")
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Print the points and call nobody; with --out also write the plan, as for Locust.",
        ),
    ] = False,
) -> None:
    """Call URL as so many users would, for so long, then show the table and write the report.

    The same command again resumes. A point whose load generator was late is INVALID, not slow.

    `rehearse live ws://127.0.0.1:8765/v1/realtime --sessions 8,16,32`

    `rehearse live wss://host/v1/realtime --dialect openai --set model=NAME --audio recordings --set p=0.5`

    `rehearse live http://127.0.0.1:8000/v1 --rate 10 --duration 30 --set model=NAME`

    `rehearse live URL --find "ttfp_p90<=1.0 continuity>=0.95" --up-to 128`

    `rehearse list workloads speech` shows what users do; `--set chunk_ms=40` and others are of the client
    """
    from harness import results
    from harness.experiment import expand
    from harness.live.live_experiment import asked
    from harness.live.capacity import FIRST, parse_targets

    targets = parse_targets(find) if find is not None else ()
    if up_to is not None and not targets:
        raise UserError("--up-to is where --find stops; give --find too, or leave it out.")
    if rate is not None and (sessions is not None or targets):
        raise UserError(
            f"--rate is an open loop and {'--find' if targets else '--sessions'} a closed one; leave one out."
        )
    if not 1 <= duration <= 86_400:
        raise UserError(f"--duration {duration:g}: give a length from 1 to 86400 s.")
    numbers = [int(n) for n in _numbers("--sessions", sessions, whole=True)] if sessions else [FIRST]
    if targets and len(numbers) > 1:
        raise UserError("--find begins at one number of --sessions; give one, or leave it out.")
    most = up_to or 256 if targets else max(numbers)
    target = {"url": url, "dialect": dialect, "shards": shards, "scrape": scrape, "token_env": token_env}
    experiment = asked(
        {name: value for name, value in target.items() if value is not None},
        parse_settings(settings),
        sessions=None if rate else numbers,
        rates=_numbers("--rate", rate, whole=False) if rate else None,
        duration_s=duration,
        repeats=repeats or (3 if targets else 1),
        audio=audio,
        most=most,
    )
    folder = out or Path("results/live")
    points = expand(experiment)
    if dry_run:
        for point in points:
            typer.echo(f"{point.id}  {point.label}")
        typer.echo(f"{len(points)} points")
        if out is not None:
            with results.claim(out, experiment):
                pass
        return
    if targets:
        _find(experiment, targets, most, min(numbers[0], most), folder)
        return
    raise typer.Exit(1 if _measured(experiment, points, folder) else 0)


def _measured(experiment: Experiment, points: list[Any], folder: Path) -> bool:
    from reports.cli.measuring import measure_points
    from reports.cli.report import present

    def show(rows: list[dict[str, Any]]) -> None:
        present(experiment, rows, folder)

    return measure_points(experiment, points, folder, 1, experiment.timeout_s, show)


def _find(experiment: Experiment, targets: tuple[Target, ...], up_to: int, first: int, folder: Path) -> None:
    """Search, with the table of all that was measured at the end, and the answer."""
    from harness.experiment import Traces, expand
    from harness.live.capacity import KNEE, answer, as_dict, search
    from harness.record import write_json
    from harness.results import write_summary
    from reports.cli.measuring import measure_points
    from reports.cli.report import present

    traces: Traces = {}
    (axis,) = (name for name in experiment.grid if name in ("c", "sessions"))
    tried: dict[int, list[str]] = {}

    def at(numbers: list[int]) -> Experiment:
        return experiment.model_copy(update={"grid": {**experiment.grid, axis: numbers}})

    def measure(n: int) -> Step:
        points = expand(at([n]), traces)
        before = [id for ids in tried.values() for id in ids]
        tried[n] = [point.id for point in points]
        measure_points(
            at(sorted(tried)), points, folder, 1, experiment.timeout_s, lambda rows: None, before=before
        )
        return _step(folder, n, tried[n], targets)

    knee = search(measure, targets, up_to, first)
    write_json(folder / KNEE, as_dict(knee))
    rows = write_summary(folder, [id for n in sorted(tried) for id in tried[n]])
    present(at(sorted(tried)), rows, folder)
    _show(knee)
    typer.echo(f"{experiment.set['url']} {answer(knee)}")


def _step(folder: Path, n: int, ids: list[str], targets: tuple[Target, ...]) -> Step:
    from harness.live.capacity import Repeat, judge, judged_value
    from harness.results import find_record

    repeats = []
    for id in ids:
        record = find_record(folder / "points", id)
        assert record is not None, "it was just measured"
        error = record.manifest.get("error", "")
        requests = record.table("requests") if record.metrics else None
        values = tuple(
            None if requests is None else judged_value(target.metric, record.metrics, requests)
            for target in targets
        )
        repeats.append(Repeat(id, values, error))
    return judge(n, repeats, targets)


def _show(knee: Knee) -> None:
    """Each number that was tried, and whether it passed."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from harness.live.capacity import name_of, number

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("calls", justify="right")
    for target in knee.targets:
        sign = {"<=": "≤", ">=": "≥"}[target.op]
        table.add_column(
            f"{name_of(target.metric)} {sign} {number(target.metric, target.bound)}", justify="right"
        )
    table.add_column("")
    styles = {"passes": "green", "fails": "red", "invalid": "yellow"}
    for step in knee.steps:
        told = [
            ", ".join("–" if v is None else number(t.metric, v, unit=False) for v in values)
            for t, values in zip(
                knee.targets, zip(*(r.values for r in step.repeats), strict=True), strict=True
            )
        ]
        verdict = "INVALID" if step.verdict == "invalid" else step.verdict
        table.add_row(str(step.sessions), *told, Text(verdict, styles[step.verdict]))
    Console().print(table)


def _numbers(option: str, text: str, *, whole: bool) -> list[float]:
    """The numbers in `8,16,32`; UserError for anything else, or what is not above 0."""
    found = []
    for part in text.split(","):
        try:
            value = int(part) if whole else float(part)
        except ValueError:
            value = 0
        if not 0 < value < 1e6:
            kind = "whole numbers from 1 on" if whole else "numbers above 0"
            raise UserError(
                f"{option} {text}: {part.strip()!r} is none; give {kind}, such as {option} 8,16,32."
            )
        found.append(value)
    return list(dict.fromkeys(found))
