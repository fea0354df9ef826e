"""Numbers of a card's claims: values of its points, seed by seed, and combinations of them.

    ratio("audio_ttfp_p90", of("c = 8", "liveserve"), to=of("c = 8", "vllm_omni"))

A *measure* gives a number for each seed of a card's runs; a *tally* says for each run whether it has something.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np

from harness.metrics.stats import Spread, across_seeds, paired
from reports.runs.measured import Measured, Run
from workloads.errors import UserError

Panels = Mapping[str, Run]
"""The runs of a card by panel."""
Values = dict[int, float | None]
"""A number for each seed; None where it could not be measured."""
Measure = Callable[[Panels], Values]


@dataclass(frozen=True)
class Setting:
    """Points of a card that differ in their seed only."""

    panel: str
    engine: str | None
    """None in a panel with one engine."""
    params: Mapping[str, Any]

    def points(self, panels: Panels) -> list[Measured]:
        """Finished and failed ones; none where the panel was not run. UserError when they differ in more."""
        run = panels.get(self.panel)
        points = [] if run is None else [
            point
            for point in run.points
            if self.engine in (None, point.point.engine)
            and all(point.params.get(name) == value for name, value in self.params.items())
        ]  # fmt: skip
        if len({point.seed for point in points}) < len(points):
            varied = [f"{name}={value}" for name, value in self.params.items()]
            setting = " ".join([self.engine or "its engine", *varied])
            raise UserError(
                f"panel {self.panel!r} has several points for {setting} and one seed, so its claims have no single "
                "value; give each --set one value."
            )
        return points


def of(panel: str, engine: str | None = None, **params: Any) -> Setting:
    """The points of an engine in a panel, or of its only one, where these parameters have these values."""
    return Setting(panel, engine, params)


Quantity = str | Callable[[Measured], float | None]
"""A metric's name (`harness.metrics.definitions`, `frame_definitions`), or what to read off a finished point."""


def counter(name: str) -> Quantity:
    """A counter of the engine's; None where it has none of that name."""
    return lambda point: point.record.counters.get(name)


def of_turns(column: str, reduce: Callable[[np.ndarray], Any] = np.nanmean) -> Quantity:
    """A column of the request table over the turns of the steady window, reduced to one number; default: its mean."""
    return lambda point: float(reduce(point.requests[column].to_numpy(float)))


def of_run(column: str, reduce: Callable[[np.ndarray], Any] = np.nanmean) -> Quantity:
    """The same over all turns of the run, as in benchmarks that leave no start-up out."""
    return lambda point: float(reduce(point.all_requests[column].to_numpy(float)))


def over_points(quantity: Quantity, points: Iterable[Measured]) -> Values:
    """The quantity of each of these points by its seed; None for a failed point."""
    return {point.seed: _of_point(quantity, point) for point in points}


def spread(points: Iterable[Measured], quantity: Quantity) -> Spread:
    """A quantity over the seeds of points that differ in nothing else."""
    return across_seeds(over_points(quantity, points))


def _of_point(quantity: Quantity, point: Measured) -> float | None:
    if isinstance(quantity, str):
        return point.value(quantity)
    return None if point.error is not None else quantity(point)


@dataclass(frozen=True)
class Tally:
    """The number of runs, over seeds and panels, in which `quantity` is above 0."""

    quantity: Quantity
    settings: tuple[Setting, ...]

    def __call__(self, panels: Panels) -> dict[str, float | None]:
        """1 or 0 for each run, None for a failed one; runs by panel, engine, setting and seed."""
        return {
            f"{setting.panel}: {point.point.label}": number if number is None else float(number > 0)
            for setting in self.settings
            for point in setting.points(panels)
            for number in [_of_point(self.quantity, point)]
        }


def tally(quantity: Quantity, *settings: Setting) -> Tally:
    """Return the number of runs that have it, k of n."""
    return Tally(quantity, settings)


def value(quantity: Quantity, setting: Setting) -> Measure:
    """The quantity itself."""
    return lambda panels: over_points(quantity, setting.points(panels))


def ratio(quantity: Quantity, setting: Setting, to: Setting) -> Measure:
    """The quantity at a setting over that at another, seed by seed."""
    return quotient(value(quantity, setting), value(quantity, to))


def change(quantity: Quantity, setting: Setting, since: Setting) -> Measure:
    """The relative change from another setting, seed by seed: −0.4 is 40 % less."""
    return each(ratio(quantity, setting, since), lambda number: number - 1)


def difference(quantity: Quantity, setting: Setting, less: Setting) -> Measure:
    """The quantity at a setting minus that at another, seed by seed."""
    return minus(value(quantity, setting), value(quantity, less))


def quotient(above: Measure, below: Measure) -> Measure:
    """One measure over another, seed by seed; a seed needs both."""
    return lambda panels: paired(below(panels), above(panels)).ratios


def minus(measure: Measure, less: Measure) -> Measure:
    """One measure minus another, seed by seed; a seed needs both."""
    return lambda panels: paired(less(panels), measure(panels)).differences


def each(measure: Measure, apply: Callable[[float], float | None]) -> Measure:
    """Return the measure with `apply` applied to its values, seed by seed."""
    return lambda panels: {seed: None if number is None else apply(number) for seed, number in measure(panels).items()}


def largest(*measures: Measure) -> Measure:
    """The largest of several measures, seed by seed; a seed needs all of them."""
    return _over(max, measures)


def smallest(*measures: Measure) -> Measure:
    """The smallest of several measures, seed by seed; a seed needs all of them."""
    return _over(min, measures)


def average(*measures: Measure) -> Measure:
    """The mean of several measures, seed by seed; a seed needs all of them."""
    return _over(fmean, measures)


def _over(combine: Callable[[list[float]], float], measures: tuple[Measure, ...]) -> Measure:
    def measure(panels: Panels) -> Values:
        measured = [each(panels) for each in measures]
        seeds = sorted({seed for values in measured for seed in values})
        by_seed = {seed: [values.get(seed) for values in measured] for seed in seeds}
        return {
            seed: None if None in values else combine([v for v in values if v is not None])
            for seed, values in by_seed.items()
        }

    return measure
