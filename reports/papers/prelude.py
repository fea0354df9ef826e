"""Names that every card is written with: `from reports.papers.prelude import *` is its header."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np

from harness.experiments.experiment import Experiment
from harness.metrics.stats import Spread, across_seeds
from harness.request_tables.request_table import COMPLETED
from reports.claims.claim import Claim, Unit
from reports.claims.quantities import (
    Measure,
    Panels,
    Quantity,
    Setting,
    Values,
    average,
    change,
    counter,
    difference,
    each,
    largest,
    minus,
    of,
    of_turns,
    over_points,
    quotient,
    ratio,
    smallest,
    spread,
    tally,
    value,
)
from reports.claims.sensitivity import varied
from reports.claims.stated import Number, claim, level, merged, moves, runs, times
from reports.figures.dashboard import runs_of, views, views_by_engine
from reports.figures.drawing import in_per_cent
from reports.figures.forms import (
    Draw,
    Plot,
    Series,
    bars,
    behind,
    distribution,
    every,
    figure,
    grid,
    lines,
    own,
    picture,
    stacked,
)
from reports.figures.frames import finished, median_run
from reports.figures.picture import LeftOut, Picture, paper_marker
from reports.figures.shared_turns import ReplyLog
from reports.figures.style import INK, MUTED, STAGES, Look, engine_looks, looks
from reports.runs.measured import Measured, Run, Variant


def experiment(
    name: str,
    engines: Iterable[str],
    workload: str,
    settings: Mapping[str, Any],
    seeds: Iterable[int] = range(3),
    timeout_s: float = 900,
    device: str = "virtual",
    **axes: Any,
) -> Experiment:
    """Return an experiment of these engines with these settings; `axes`: varied parameters, instead of settings of
    these names."""
    return Experiment(
        name=name,
        engines=list(engines),
        workload=workload,
        device=device,
        set={key: settings[key] for key in settings if key not in axes},
        grid={key: list(axis) for key, axis in axes.items()},
        seeds=list(seeds),
        timeout_s=timeout_s,
    )
