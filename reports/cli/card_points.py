"""The points of the requested figure cards, each once, and the directory that a group shares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from workloads.errors import UserError, nearest

if TYPE_CHECKING:
    from harness.experiments.experiment import Experiment
    from harness.experiments.point import Point
    from harness.records.results import Collection
    from reports.cards.card import Figure

TUNED_ON = 1000
"""First seed for tuning weights (`liveserve-tuning`); no figure is measured on it or above."""

Asked = dict[str, dict[str, "Experiment"]]
"""card -> panel -> experiment as it is to be run."""


def asked(
    figures: Sequence[Figure], settings: Mapping[str, object], seeds: int | None, device: str | None, quick: bool
) -> Asked:
    """The experiments of these cards with --quick, --set and --seeds applied.

    A panel without one of the parameters is left as it is; UserError for a parameter that no panel has.
    """
    from harness.by_device import override, parameters
    from harness.experiments.experiment import CHOICES
    from workloads.devices import REAL_DEVICES

    asked_for = device or settings.get("device")
    settings = {name: value for name, value in settings.items() if name != "device"}
    able = runnable(figures, settings)
    if able[0].needs:
        if asked_for not in REAL_DEVICES:
            raise UserError(
                f"{able[0].name} measures what a model really says; add --device cuda, or --device cpu for a tiny one."
            )
        settings["device"] = asked_for
    else:
        devices = {each.device for figure in able for each in figure.experiments.values()}
        if asked_for is not None and devices != {asked_for}:
            raise UserError(
                f"these figure cards run on device {' and '.join(sorted(devices))} only; leave --device out."
            )
    names = {name for figure in figures for e in figure.experiments.values() for name in parameters(e)}
    for name in settings:
        if name not in names and name not in CHOICES:
            raise UserError(f"no card has a parameter {name!r}.{nearest(name, [*names, *CHOICES])}")

    def applied(experiment: Experiment, changes: Mapping[str, object]) -> Experiment:
        accepted = {*parameters(experiment), *CHOICES}
        return override(experiment, {name: text for name, text in changes.items() if name in accepted}, None)

    experiments: Asked = {}
    count = seeds or (1 if quick else None)
    for figure in able:
        for panel, original in figure.experiments.items():
            # Several values shorten an axis, they never make one.
            short = {name: text for name, text in figure.quick.items() if name in original.grid or "," not in text}
            experiment = applied(original, short) if quick else original
            experiment, first = applied(experiment, settings), original.seeds[0]
            if count is not None:
                experiment = experiment.model_copy(update={"seeds": [*range(first, first + count)]})
                if first < TUNED_ON < first + count:
                    raise UserError(f"seeds from {TUNED_ON} on are those of card liveserve-tuning; use fewer seeds.")
            experiments.setdefault(figure.name, {})[panel] = experiment
    return experiments


def runnable(figures: Sequence[Figure], settings: Mapping[str, object]) -> list[Figure]:
    """Return the cards that can be measured. A single card also counts when the settings give all that it needs. Cards
    that are left out are named with their needs. UserError when none can be measured."""
    if len(figures) == 1 and figures[0].give and settings.keys() >= set(figures[0].give):
        return list(figures)
    lacking = [figure for figure in figures if figure.needs]
    if len(lacking) == len(figures):
        raise UserError(f"{figures[0].name} cannot be measured here: it needs {figures[0].needs}.")
    for figure in lacking:
        typer.echo(f"{figure.name}: skipped, needs {figure.needs}.", err=True)
    return [figure for figure in figures if not figure.needs]


def expanded(name: str, experiments: Asked) -> tuple[Collection, list[Point]]:
    """The collection that a run of these experiments makes, and its points, each once, in their order."""
    from harness.by_device import expand
    from harness.experiments.grid import Traces
    from harness.records.results import Collection, Panel

    traces: Traces = {}
    points: dict[str, Point] = {}
    cards: dict[str, dict[str, Panel]] = {}
    for card, panels in experiments.items():
        for panel, experiment in panels.items():
            expansion = expand(experiment, traces)
            points.update((point.id, point) for point in expansion if point.id not in points)
            entry = Panel(experiment=experiment, points=[point.id for point in expansion])
            cards.setdefault(card, {})[panel] = entry
    return Collection(name=name, cards=cards), list(points.values())


def default_out(group: str, quick: bool) -> Path:
    """Return results/GROUP, or the sibling folder for --quick."""
    return Path("results") / f"{group}{'-quick' if quick else ''}"
