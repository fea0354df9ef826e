"""Sources of a run, as a user names them: a card, figure cards, a YAML file, a results directory, or an experiment."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workloads.errors import UserError, validate

if TYPE_CHECKING:
    from harness.experiments.experiment import Experiment
    from harness.experiments.settings import Settings
    from reports.cards.card import Card, Figure

Source = str | Path | Mapping[str, Any]


def figures(source: str) -> list[Figure]:
    """The figure cards that `source` names; none for a bench card, a file or a directory."""
    if source.endswith((".yaml", ".yml")):
        return []
    if Path(source).is_dir():
        from harness.records.results import COLLECTION, EXPERIMENT
        from reports.cards.card import known

        if (Path(source) / COLLECTION).is_file():
            raise UserError(f"{source} holds figure cards; run them by the name of a card or their group.")
        # A paper's own folder often has its name.
        if (Path(source) / EXPERIMENT).is_file() or source not in known():
            return []
    from reports.cards.card import Card, chosen

    cards = chosen(source)
    return [] if isinstance(cards, Card) else cards


def resolve(
    source: Source,
    settings: Settings,
    seeds: int | None = None,
    device: str | None = None,
    quick: bool = False,
    profile: Path | str | None = None,
) -> Experiment:
    """Return the experiment that `source` names or contains, with the options of `rehearse run` applied.

    UserError for what names nothing, and for options that do not fit it.
    """
    from harness.by_device import BY_DEVICE
    from harness.experiments.experiment import Experiment, load_experiment
    from harness.experiments.settings import apply

    if isinstance(source, Mapping):
        stored = validate(Experiment, source, "the experiment")
    else:
        file = _file(str(source))
        stored = None if file is None else load_experiment(file)
    if stored is not None:
        if quick:
            raise UserError("--quick is for cards; narrow a stored experiment with --set and --seeds.")
        experiment = apply(stored, settings, BY_DEVICE, seeds, device=device)
    else:
        card = _card(str(source))
        small = card.quick if quick else None
        experiment = apply(card.experiment, settings, BY_DEVICE, seeds, device=device, quick=small, real=card.real)
    return experiment if profile is None else experiment.model_copy(update={"profile": str(profile)})


def _card(source: str) -> Card:
    from reports.cards.card import Card, chosen, known

    if Path(source).is_dir() and source not in known():
        raise UserError(
            f"{source} is a folder without results (no experiment.json); give the --out of a run, a card or a YAML "
            "file."
        )
    card = chosen(source)
    if not isinstance(card, Card):
        raise UserError(f"{source} names figure cards of a paper; run them with `rehearse run {source}`.")
    return card


def _file(source: str) -> Path | None:
    """The YAML file that `source` names, or what its results directory keeps; None for the name of a card."""
    if source.endswith((".yaml", ".yml")):
        return Path(source)
    if Path(source).is_dir():
        from harness.records.results import EXPERIMENT

        stored = Path(source) / EXPERIMENT
        return stored if stored.is_file() else None
    return None


def default_out(source: Source, name: str, device: str) -> Path:
    """Return results/NAME; with the suffix -DEVICE on the wall clock, and next to a results directory that is run
    again."""
    from workloads.devices import WALL_DEVICES

    if not isinstance(source, Mapping) and Path(source).is_dir() and _file(str(source)) is not None:
        return Path(f"{str(source).rstrip('/')}-{device}")
    suffix = f"-{device}" if device in WALL_DEVICES else ""
    return Path("results") / f"{name}{suffix}"
