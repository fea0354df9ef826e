"""Common parts of Nova's cards: load, baselines, and numbers of a run.

Requests are screenshots of 1,120 x 1,120 pixels with an instruction, answered by 50 tokens on average (section V-A).
With 90 tokens around them a request's KV takes the 70 MB that the paper states: 1,752 tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.experiments.experiment import Experiment
from reports.claims.bands import Band, of_model
from reports.claims.quantities import Measure, Quantity, Setting, of, of_turns, ratio, smallest
from reports.figures.forms import Draw, Fill, figure, grid, lines
from reports.papers.experiment import experiment
from reports.runs.measured import Measured

if TYPE_CHECKING:
    import pandas as pd

    from engines.systems.nova.partition import Profile

OURS, CHUNKED, STREAMS, LIMIT = "nova", "chunked", "multi_stream", "pf_limit"
BASELINES = (LIMIT, CHUNKED, STREAMS)
RATES = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
NEAR = (0.6, 0.7, 0.8)
"""Rates near saturation, by Table V: 0.86, 0.97 and 1.08 of the time is taken."""
LOAD: dict[str, Any] = {"deployment": "cogagent_a6000", "requests": 500, "scaffold_tokens": 90, "turn_timeout_s": 600.0}
"""Section V-C: traces of 500 requests; users never give up."""
SERVED = "served"
Changed = Callable[[Setting], Setting]
"""Gives the setting to measure instead of one."""
REQUESTS = 500
"""Requests behind a number of a served run (section V-C)."""
DEVICE = of_model(806.8 / 797.2 - 1, "the paper has 806.8 and 797.2 ms for one pass of vision (Tables I and VI)")
"""Band of a time of the GPU by itself."""
SHARE = Band(0, 2, 'shares change "in units of 2" SMs (section V-A)')
BOUND = Band(0, 0, "the paper prints a bound")


def gui(name: str, engines: Sequence[str], rates: Sequence[float] = RATES, **changes: Any) -> Experiment:
    """Return these engines at these rates; `changes`: further settings, lists of them further axes."""
    axes = {key: value for key, value in changes.items() if isinstance(value, list)}
    rate: dict[str, Any] = {"rate": list(rates)} if len(rates) > 1 else {}
    return experiment(f"nova-{name}", engines, "gui", LOAD | {"rate": rates[0]} | changes, **axes, **rate)


ALONE = "alone"
ALONE_ONLY = {ALONE: gui(ALONE, [OURS], [0.001], requests=20)}
"""Requests that are alone in the system: times of stages by themselves, and the model of two concurrent stages."""
EVERYBODY = {SERVED: gui("served", [*BASELINES, OURS])}
"""Figs. 10 to 12 and Table V: four systems at six rates."""
BY_ITSELF = of(ALONE, OURS)


def at(rate: float, engine: str = OURS, panel: str = SERVED) -> Setting:
    """A system at a rate."""
    return of(panel, engine, rate=rate)


def steps(point: Measured, *stages: str) -> pd.DataFrame:
    """Passes of these stages."""
    passes = point.record.table("steps")
    return passes.loc[passes["stage"].isin(stages) & (passes["requests"] > 0)]


def mean_pass_s(stage: str, batch: int | None = None) -> Quantity:
    """Return the mean seconds of a stage's passes, or of its passes with this number of requests."""

    def quantity(point: Measured) -> float | None:
        passes = steps(point, stage)
        if batch is not None:
            passes = passes.loc[passes["requests"] == batch]
        return float(np.mean(passes["dt_s"])) if len(passes) else None

    return quantity


E2E, E2E_MAX, TBT = of_turns("e2e_s"), of_turns("e2e_s", np.nanmax), of_turns("tbt_mean_s")


def unchanged(setting: Setting) -> Setting:
    """The setting itself."""
    return setting


def over(quantity: Quantity, rate: float, engine: str, panel: str = SERVED, changed: Changed = unchanged) -> Measure:
    """A system's quantity over Nova's, at one rate; `changed`: what Nova is measured at instead."""
    return ratio(quantity, at(rate, engine, panel), to=changed(at(rate, OURS, panel)))


def best(quantity: Quantity, rate: float, panel: str = SERVED, changed: Changed = unchanged) -> Measure:
    """The best baseline's over Nova's."""
    return smallest(*(over(quantity, rate, engine, panel, changed) for engine in BASELINES))


def fixed(compute: Callable[[], float]) -> Measure:
    """Return a measure of the modelled device without requests, the same for each seed."""
    return lambda panels: {point.seed: compute() for point in BY_ITSELF.points(panels)}


@cache
def profile() -> Profile:
    """Stages side by side on the RTX A6000, as Nova profiles them before it serves."""
    from engines.devices.stage import VirtualStage
    from engines.devices.virtual import VirtualGpu
    from engines.server import ServerParams, resolve
    from engines.systems.nova.partition import profile as measured
    from harness.clocks.clock import run

    made = resolve(ServerParams.model_validate({"deployment": LOAD["deployment"]}))

    async def main() -> Profile:
        gpu, decoder = VirtualGpu(made.gpu, shared=True), made.stages["thinker"].decoder
        return measured(VirtualStage(decoder, gpu, in_turn=made.in_turn, waves=made.waves), 12)

    return run(main(), virtual=True)


def drawn(
    title: str,
    quantities: Mapping[str, Quantity],
    caption: str,
    panel: str = SERVED,
    rates: Sequence[float] = RATES,
    more: Callable[[Quantity], Fill] | None = None,
) -> Draw:
    """Each quantity over the rate, a line for each system; `more` draws on the axes of a quantity."""
    series = grid(panel, [*BASELINES, OURS], rate=rates)
    plots = [
        lines(quantity, series, ylabel=name, extra=more and more(quantity)) for name, quantity in quantities.items()
    ]
    return figure(title, *plots, caption=caption)
