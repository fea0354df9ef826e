"""`rehearse run`: expand an experiment, measure what is not measured yet, show the table."""

from __future__ import annotations

import contextlib
import importlib.util
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from reports.cli.report import present
from reports.cli.settings import Settings, at_least, parse_settings
from workloads.errors import UserError

if TYPE_CHECKING:
    from harness.experiment import Experiment, Point


def run(
    source: Annotated[
        str,
        typer.Argument(
            metavar="CARD_YAML_OR_DIR", help="A card's name, a YAML file, or a results directory."
        ),
    ],
    settings: Settings = [],  # noqa: B006  (typer copies it)
    seeds: Annotated[
        int | None,
        typer.Option("--seeds", metavar="N", parser=at_least(1), help="Use the seeds 0 to N-1."),
    ] = None,
    device: Annotated[str | None, typer.Option("--device", help="See `rehearse list devices`.")] = None,
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
            help="Points at a time; default: the processor's cores; one on real devices.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="DIR", help="Results directory; default: results/NAME or results/NAME-DEVICE."
        ),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="The card's small version, on one seed.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the points and run nothing.")] = False,
) -> None:
    """Measure every point of an experiment, each in a fresh worker, then show the table and write the report.

    The same command again resumes: finished points are not repeated, failed ones are tried again.

    `rehearse run bench --quick`

    `rehearse run bench --set c=16 --set p=0,0.7 --set engine=liveserve --seeds 5`

    `rehearse run bench --set u2_mode=utility_gate,work_conserving --out results/u2`

    `rehearse run my_experiment.yaml --jobs 4 --dry-run`

    `rehearse run bench --device cpu --set c=4` really executes small models, in the card's settings for that

    `rehearse run results/bench-cpu --device virtual` runs the same experiment on the modelled device

    `rehearse run results/bench-cpu --device virtual --profile results/profiles/speech_tiny-cpu.yaml`
    """
    from harness.experiment import expand

    experiment = _resolve(source, parse_settings(settings), seeds, device, quick)
    if profile is not None:
        experiment = experiment.model_copy(update={"profile": str(profile)})
    points = expand(experiment)
    if dry_run:
        for point in points:
            typer.echo(f"{point.id}  {point.label}")
        typer.echo(f"{len(points)} points")
        return
    if importlib.util.find_spec("vllm") is None:
        raise UserError(
            "a run needs vLLM, which is not installed; run `make` in a checkout, or install rehearsal[cpu]."
        )
    failed = _measure(experiment, points, out or _default_out(source, experiment), _jobs(experiment, jobs))
    raise typer.Exit(1 if failed else 0)


def _resolve(
    source: str, settings: dict[str, str], seeds: int | None, device: str | None, quick: bool
) -> Experiment:
    from engines.registry import REAL_DEVICES
    from harness.experiment import load_experiment, override
    from harness.results import EXPERIMENT
    from reports.cards import card

    if device is not None:
        settings = {**settings, "device": device}
    stored = Path(source) / EXPERIMENT
    if source.endswith((".yaml", ".yml")) or stored.is_file():
        if quick:
            raise UserError("--quick is for cards; narrow a stored experiment with --set and --seeds.")
        return override(load_experiment(stored if stored.is_file() else Path(source)), settings, seeds)
    chosen = card(source)
    experiment = chosen.experiment
    # First the card's own settings, so that what another workload does not have is dropped with it.
    if settings.get("device") in REAL_DEVICES:
        experiment, seeds = override(experiment, chosen.real), seeds or 1
    elif quick:
        experiment, seeds = override(experiment, chosen.quick), seeds or 1
    return override(experiment, settings, seeds)


def _default_out(source: str, experiment: Experiment) -> Path:
    """results/NAME; with a suffix -DEVICE for real devices, and beside a results directory that is run again."""
    from engines.registry import REAL_DEVICES

    if Path(source).is_dir():
        return Path(f"{source.rstrip('/')}-{experiment.device}")
    suffix = f"-{experiment.device}" if experiment.device in REAL_DEVICES else ""
    return Path("results") / f"{experiment.name}{suffix}"


def _jobs(experiment: Experiment, jobs: int | None) -> int:
    """How many points run at a time; on a real device one, or they would measure each other."""
    from engines.registry import REAL_DEVICES
    from harness.provenance import cores

    if experiment.device not in REAL_DEVICES:
        return jobs or cores()
    if jobs not in (None, 1):
        raise UserError(
            f"--jobs {jobs}: device {experiment.device} measures one point at a time; leave --jobs out."
        )
    return 1


def _measure(experiment: Experiment, points: list[Point], out: Path, jobs: int) -> bool:
    """Run what is not finished and show all; True if any point failed."""
    from engines.registry import REAL_DEVICES
    from harness import results
    from harness.measure import measure
    from harness.workers import LocalExecutor
    from reports.cli.progress import progress

    with results.claim(out, experiment) as points_dir:
        todo = results.unfinished(points_dir, points)
        spawn = experiment.device in REAL_DEVICES
        executor = LocalExecutor(points_dir, measure, jobs=jobs, timeout_s=experiment.timeout_s, spawn=spawn)
        with (
            _stoppable(out, points),
            progress(len(points), len(points) - len(todo)) as show,
            contextlib.closing(executor.run(todo)) as outcomes,
        ):
            for outcome in outcomes:
                show(outcome)
        rows = results.write_summary(out, points)
        present(experiment, rows, out)
    return any(row["status"] == "failed" for row in rows)


@contextlib.contextmanager
def _stoppable(out: Path, points: list[Point]) -> Iterator[None]:
    """Ctrl-C and SIGTERM end the run with what is finished kept, and one sentence."""
    from harness import results

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    except KeyboardInterrupt:
        finished = sum(row["status"] == "ok" for row in results.write_summary(out, points))
        sentence = (
            f"Stopped with {finished} of {len(points)} points finished; run the same command again to resume."
        )
        typer.echo(sentence, err=True)
        raise typer.Exit(130) from None
    finally:
        signal.signal(signal.SIGTERM, before)
