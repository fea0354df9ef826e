"""Sources of a run, as a user names them: a card, figure cards, a YAML file, a results directory, or an experiment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workloads.errors import UserError, validate

if TYPE_CHECKING:
    from harness.executors.place import Place
    from harness.experiments.experiment import Experiment
    from harness.experiments.point import Point
    from reports.cards.card import Figure

MOST_PER_CORE = 8
"""Points at a time for each core: each is a process that computes all the time. [chosen]"""

Source = str | Path | Mapping[str, Any]


def figures(source: str) -> list[Figure]:
    """The figure cards that `source` names; none for a bench card, a file or a directory."""
    if source.endswith((".yaml", ".yml")):
        return []
    if Path(source).is_dir():
        from harness.records.results import COLLECTION

        if (Path(source) / COLLECTION).is_file():
            raise UserError(f"{source} holds figure cards; run them by the name of a card or their group.")
        return []
    from reports.cards.card import Card, chosen

    found = chosen(source)
    return [] if isinstance(found, Card) else found


def resolve(
    source: Source,
    settings: Mapping[str, Any],
    seeds: int | None = None,
    device: str | None = None,
    quick: bool = False,
    profile: Path | str | None = None,
) -> Experiment:
    """The experiment that `source` names or holds, with what `rehearse run` takes as options applied.

    UserError for what names nothing, and for options that do not fit it.
    """
    if device is not None:
        settings = {**settings, "device": device}
    experiment = _resolve(source, settings, seeds, quick)
    return experiment if profile is None else experiment.model_copy(update={"profile": str(profile)})


def _resolve(source: Source, settings: Mapping[str, Any], seeds: int | None, quick: bool) -> Experiment:
    from engines.devices.names import REAL_DEVICES
    from harness.experiments.experiment import Experiment, load_experiment
    from harness.experiments.settings import override

    if isinstance(source, Mapping):
        stored = validate(Experiment, source, "the experiment")
    else:
        file = _file(str(source))
        stored = None if file is None else load_experiment(file)
    if stored is not None:
        if quick:
            raise UserError("--quick is for cards; narrow a stored experiment with --set and --seeds.")
        return override(stored, settings, seeds)
    from reports.cards.card import Card, chosen

    try:
        card = chosen(str(source))
    except UserError:
        if Path(str(source)).is_dir():
            raise UserError(
                f"{source} is a folder without results (no experiment.json); give the --out of a run, a card or a YAML "
                "file."
            ) from None
        raise
    if not isinstance(card, Card):
        raise UserError(f"{source} names figure cards of a paper; run them with `rehearse run {source}`.")
    experiment = card.experiment
    # First the card's own settings, so that what another workload does not have is dropped with it.
    if settings.get("device") in REAL_DEVICES:
        experiment, seeds = override(experiment, card.real), seeds or 1
    elif quick:
        experiment, seeds = override(experiment, card.quick), seeds or 1
    return override(experiment, settings, seeds)


def _file(source: str) -> Path | None:
    """The YAML file that `source` names, or what its results directory keeps; None for the name of a card."""
    if source.endswith((".yaml", ".yml")):
        return Path(source)
    if Path(source).is_dir():
        from harness.records.results import EXPERIMENT

        stored = Path(source) / EXPERIMENT
        return stored if stored.is_file() else None
    return None


def default_out(source: Source, experiment: Experiment) -> Path:
    """results/NAME; with a suffix -DEVICE on the wall clock, and beside a results directory that is run again."""
    from engines.devices.names import WALL_DEVICES

    if not isinstance(source, Mapping) and Path(source).is_dir():
        return Path(f"{str(source).rstrip('/')}-{experiment.device}")
    suffix = f"-{experiment.device}" if experiment.device in WALL_DEVICES else ""
    return Path("results") / f"{experiment.name}{suffix}"


def local_jobs(jobs: int | None) -> int:
    """Points at a time on this machine, by default its cores; UserError for so many that they starve one another."""
    from harness.experiments.provenance import cores

    most = MOST_PER_CORE * cores()
    if jobs is not None and jobs > most:
        raise UserError(
            f"--jobs {jobs}: points at a time share the {cores()} cores that this process may use; give {most} at "
            "most, or leave --jobs out."
        )
    return jobs or cores()


def points_at_a_time(points: Sequence[Point], jobs: int | None, place: Place) -> int | None:
    """How many points run at a time; on the wall clock one, or they would measure each other. None: as many as the
    place has room for. UserError for points that cannot be taken there."""
    from engines.devices.names import WALL_DEVICES

    place.check(points)
    if not place.local:
        return jobs
    device = next((point.device for point in points if point.device in WALL_DEVICES), None)
    if device is None:
        return local_jobs(jobs)
    if jobs not in (None, 1):
        raise UserError(f"--jobs {jobs}: device {device} measures one point at a time; leave --jobs out.")
    return 1
