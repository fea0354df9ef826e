"""Fit step times to measured steps, say how well the fit meets steps that it has not seen, and charge a run with it.

Non-negative least squares on relative errors, over the medians of grid cells: a stall that hits one step must not bend
the model. Medians are biased low where noise has a tail, so the fit is rescaled until the sums of predicted and of
measured times agree (seen in our own measurements: 4 to 10 % low without). Held out are whole cells, in folds, so that
each cell is predicted once by a fit that never saw it. Steps during which somebody else had the machine, by the canary
or by their own stall, are left out and counted.

The cost of a step of a real run goes from the end of the step before it (after a pause of the loop: from its own call
of `schedule`) to its end: update, delivery, scheduling, hand-over, forward, sampling and the clients' share of the same
cores. Between the same two points the loop on the virtual clock takes no time, and at both it looks for arrivals.
"""

from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import astuple, dataclass

import numpy as np
import pandas as pd

from engines.core.device import Row
from engines.devices import profile
from engines.devices.profile import Error, FittedForm, Reaction, StageProfile
from engines.devices.step_fit import design_of, least_relative
from engines.devices.step_time import CONSERVE, FORMS, SEGMENTED, StepTime, Totals, terms, totals
from harness.calibration.fidelity_report import rounded, spread

FOLDS = 3

FIRST_KNOT, KNOT_RATIO = 4, 4
"""Ranges of token counts end at 4, 16, 64, ...: [chosen] a few cells of the grid in each."""


LOUD = 1.2
"""Factor over its lower quartile from which a canary shows that other processes use the machine. [chosen] on a quiet
one its P90 over its median is 1.08 [measured, two shared cores]."""

STALLED = 2.0
"""Factor over its cell's median from which the operating system has delayed a step. [chosen] 0.6 % of the steps
of a quiet run, 18 % of one with four other busy processes [measured, two shared cores]."""


@dataclass(frozen=True)
class Sample:
    """One measured step: its grid cell, its content, and its time (s). `at_s`: since the measurement began. `canary_s`:
    time of the canary kernel just before."""

    cell: Hashable
    totals: Totals
    seconds: float
    at_s: float
    canary_s: float


class TooFewSteps(ValueError):
    """The error of a fit with too few different steps to hold some out."""


def undisturbed(samples: Sequence[Sample]) -> list[Sample]:
    """Return the steps (in the order of time) between quick canaries that were not stalled. All steps if these are too
    few for a fit: then the errors show that the machine was never quiet."""
    loud = LOUD * float(np.quantile([sample.canary_s for sample in samples], 0.25))
    after = [*(sample.canary_s for sample in samples[1:]), samples[-1].canary_s]
    for i in range(len(samples) - 2, -1, -1):
        if after[i] == samples[i].canary_s:  # of the same run of steps: the next canary is further on
            after[i] = after[i + 1]
    quiet = [s for s, later_s in zip(samples, after, strict=True) if max(s.canary_s, later_s) <= loud]
    middle = {cell: np.median([each.seconds for each in group]) for cell, group in _cells(quiet).items()}
    kept = [sample for sample in quiet if sample.seconds <= STALLED * middle[sample.cell]]
    enough = _least_cells(terms(SEGMENTED, knots(samples)))
    return kept if len({sample.cell for sample in kept}) >= enough else list(samples)


def knots(samples: Sequence[Sample]) -> tuple[int, ...]:
    """Return where the slope over tokens may change: powers of four with measured steps on both sides."""
    largest = max(sample.totals.tokens for sample in samples)
    positions, knot = [], FIRST_KNOT
    while knot * 2 <= largest:
        positions.append(knot)
        knot *= KNOT_RATIO
    return tuple(positions)


def fit(samples: Sequence[Sample], names: Sequence[str]) -> dict[str, float]:
    """Return coefficients in s per unit of each term, none negative, with sum(predicted) = sum(measured)."""
    medians = _cell_medians(samples)
    measured = np.array([seconds for _, seconds in medians])
    design = design_of([total for total, _ in medians], names)
    coefficients = least_relative(design, measured)
    predicted = design_of([sample.totals for sample in samples], names) @ coefficients
    coefficients *= sum(sample.seconds for sample in samples) / predicted.sum()
    return {name: float(f"{value:.6g}") for name, value in zip(names, coefficients, strict=True)}


def predict(samples: Sequence[Sample], coefficients: dict[str, float]) -> np.ndarray:
    """Return the seconds of each sample's step by the model."""
    values = np.array(list(coefficients.values()))
    return design_of([sample.totals for sample in samples], list(coefficients)) @ values


def held_out(samples: Sequence[Sample], names: Sequence[str]) -> np.ndarray:
    """Return the predicted seconds of each sample by a fit on the cells of the other folds."""
    cells = list(dict.fromkeys(sample.cell for sample in samples))
    if len(cells) < _least_cells(names):
        raise TooFewSteps(f"{len(cells)} different steps for {len(names)} terms; at least {_least_cells(names)}")
    fold = np.random.default_rng(0).permutation(np.arange(len(cells)) % FOLDS)
    fold_of = dict(zip(cells, fold.tolist(), strict=True))
    predicted = np.empty(len(samples))
    for index in range(FOLDS):
        seen = [sample for sample in samples if fold_of[sample.cell] != index]
        where = [i for i, sample in enumerate(samples) if fold_of[sample.cell] == index]
        predicted[where] = predict([samples[i] for i in where], fit(seen, names))
    return predicted


def _least_cells(names: Sequence[str]) -> int:
    return FOLDS * len(names)


def fit_stage(samples: Sequence[Sample], reaction: Sequence[Reaction] = ()) -> StageProfile:
    """Fit both forms; the better one is used. TooFewSteps when there is nothing to hold out."""
    every, samples = samples, undisturbed(samples)
    forms = {form: _fitted(samples, terms(form, knots(samples))) for form in FORMS}
    form = SEGMENTED if forms[SEGMENTED].held_out.median < forms[CONSERVE].held_out.median else CONSERVE
    ratio = _ratio(samples, forms[form])
    at_s, canary_s = ([getattr(sample, name) for sample in every] for name in ("at_s", "canary_s"))
    return StageProfile(
        form=form,
        forms=forms,
        samples=len(samples),
        cells=len({sample.cell for sample in samples}),
        max_tokens=int(max(sample.totals.tokens for sample in samples)),
        max_visible=int(max(sample.totals.visible for sample in samples)),
        left_out=rounded(1 - len(samples) / len(every)),
        residual_cv=rounded(float(np.std(np.log(ratio)))),
        drift=profile.Drift(
            canary_median_s=rounded(float(np.median(canary_s))),
            canary_spread=spread(at_s, np.array(canary_s)),
            step_spread=spread(at_s, _ratio(every, forms[form])),
        ),
        reaction=list(reaction),
    )


def _ratio(samples: Sequence[Sample], form: FittedForm) -> np.ndarray:
    """Return measured over predicted."""
    return np.array([sample.seconds for sample in samples]) / predict(samples, form.coefficients)


def _cells(samples: Sequence[Sample]) -> dict[Hashable, list[Sample]]:
    cells: dict[Hashable, list[Sample]] = defaultdict(list)
    for sample in samples:
        cells[sample.cell].append(sample)
    return cells


def _fitted(samples: Sequence[Sample], names: Sequence[str]) -> FittedForm:
    predicted = held_out(samples, names)
    by_cell: dict[Hashable, list[tuple[float, float]]] = defaultdict(list)
    for sample, seconds in zip(samples, predicted.tolist(), strict=True):
        by_cell[sample.cell].append((seconds, sample.seconds))
    middle = np.array([np.median(pairs, axis=0) for pairs in by_cell.values()])
    coefficients = fit(samples, names)
    if "k1" in coefficients:
        coefficients = {"k1": coefficients["k1"], "k2": coefficients["k2"], "k3": 0.0} | coefficients
    return FittedForm(
        coefficients=coefficients,
        held_out=_error(middle[:, 0], middle[:, 1]),
        held_out_samples=_error(predicted, np.array([sample.seconds for sample in samples])),
    )


def _error(predicted: np.ndarray, measured: np.ndarray) -> Error:
    relative = np.abs(predicted / measured - 1)
    median, p90 = np.quantile(relative, [0.5, 0.9]).tolist()
    return Error(median=rounded(median), p90=rounded(p90))


def _cell_medians(samples: Sequence[Sample]) -> list[tuple[Totals, float]]:
    """Return one step for each cell: the median time, and the mean content of its repetitions."""
    return [
        (
            Totals(*np.mean([astuple(s.totals) for s in group], axis=0).tolist()),
            float(np.median([s.seconds for s in group])),
        )
        for group in _cells(samples).values()
    ]


WINDOW_S = 1.0
"""Half the window over which drift is averaged, and the farthest that a logged step is taken from."""

TOTALS = ("requests", "tokens", "samples", "pairs", "visible")

CONTENT_WEIGHT, UNLIKE_S = 20.0, 1e-4
"""[chosen] A step of another length counts as 20 times the difference farther away in time, and one of other counts by
2 ms more."""


def step_costs(steps: pd.DataFrame, seen: pd.DataFrame, canaries: pd.DataFrame) -> pd.DataFrame:
    """Return one row a step: begin_s, end_s, seconds (canary left out), device_s (hand-over to tokens) and its
    `TOTALS`.

    `steps`: a run's step table (`harness.events.log`) of one stage. `seen`: begin_s, end_s and `TOTALS` of its steps at
    the device. `canaries`: begin_s, end_s. ValueError when the two logs are not of the same steps.
    """
    ran = steps[steps["requests"] > 0].reset_index(drop=True)
    if not np.array_equal(np.asarray(ran["requests"]), np.asarray(seen["requests"])):
        raise ValueError(f"the loop logged {len(ran)} steps and its device {len(seen)}, not the same ones")
    begin_s = np.array(ran["t_s"], float)
    end_s = begin_s + np.asarray(ran["dt_s"])
    left = np.asarray(ran["running"] + ran["waiting"]) > 0
    begin_s[1:] = np.where(left[:-1], end_s[:-1], begin_s[1:])
    canary_s = np.zeros(len(ran))
    of_step = np.searchsorted(end_s, canaries["end_s"].to_numpy())
    np.add.at(canary_s, of_step, (canaries["end_s"] - canaries["begin_s"]).to_numpy())
    return pd.DataFrame(
        {
            "begin_s": begin_s,
            "end_s": end_s,
            "seconds": end_s - begin_s - canary_s,
            "device_s": seen["end_s"] - seen["begin_s"],
            **{name: seen[name] for name in TOTALS},
        }
    )


def fit_costs(costs: pd.DataFrame) -> StepTime:
    """Fit the segmented form to a run's own steps; the sum of its predictions is the sum measured.

    Steps of about the same content (eight to a doubling) are one cell, and the fit uses its median.
    """
    values = costs[list(TOTALS)].to_numpy(float)
    cells = np.round(8 * np.log2(1 + values[:, [0, 1, 4]])).astype(int).tolist()
    samples = [
        Sample(tuple(cell), Totals(*held), seconds, at_s, 0.0)
        for cell, held, seconds, at_s in zip(
            cells, values.tolist(), costs["seconds"].tolist(), costs["begin_s"].tolist(), strict=True
        )
    ]
    return StepTime(fit(samples, terms(SEGMENTED, knots(samples))))


def predicted(costs: pd.DataFrame, model: StepTime) -> np.ndarray:
    """Return the seconds of each of the run's steps by `model`."""
    return np.array([model.seconds(Totals(*held)) for held in costs[list(TOTALS)].to_numpy(float).tolist()])


class Drift:
    """Slowness of the run over `model` around a time: measured over predicted, within `WINDOW_S`."""

    def __init__(self, costs: pd.DataFrame, model: StepTime) -> None:
        self._at_s = costs["begin_s"].to_numpy()
        self._measured = np.concatenate([[0.0], np.cumsum(costs["seconds"])])
        self._predicted = np.concatenate([[0.0], np.cumsum(predicted(costs, model))])

    def __call__(self, now: float) -> float:
        low, high = np.searchsorted(self._at_s, [now - WINDOW_S, now + WINDOW_S])
        if low == high:
            low, high = 0, len(self._at_s)
        return float((self._measured[high] - self._measured[low]) / (self._predicted[high] - self._predicted[low]))


class OwnCosts:
    """Charges the run's own costs, each once: of the step nearest in time and in content, plus the difference that
    `model` predicts between the two contents, times the drift.

    Virtual and real steps have the same content until a request joins one step earlier or later; then the difference is
    small and a stall of the machine in that step stays in. If no step within `WINDOW_S` remains: the model times the
    drift.
    """

    def __init__(self, costs: pd.DataFrame, model: StepTime) -> None:
        self._model = model
        self._drift = Drift(costs, model)
        self._begin_s = costs["begin_s"].to_numpy()
        self._seconds = costs["seconds"].to_numpy()
        self._predicted = predicted(costs, model)
        self._content = costs[["requests", "tokens", "samples"]].to_numpy(int)
        self._left = np.ones(len(costs), bool)
        self.matched = 0
        self.charged = 0

    def __call__(self, rows: Sequence[Row], now: float) -> float:
        total = totals(rows)
        self.charged += 1
        expected = self._model.seconds(total)
        low, high = np.searchsorted(self._begin_s, [now - WINDOW_S, now + WINDOW_S])
        near = low + np.flatnonzero(self._left[low:high])
        if not len(near):
            return expected * self._drift(now)
        content = (total.requests, total.tokens, total.samples)
        unlike = np.abs(self._predicted[near] - expected) + UNLIKE_S * (self._content[near] != content).any(axis=1)
        chosen = near[np.argmin(np.abs(self._begin_s[near] - now) + CONTENT_WEIGHT * unlike)]
        self._left[chosen] = False
        self.matched += bool((self._content[chosen] == content).all())
        seconds = self._seconds[chosen] + (expected - self._predicted[chosen]) * self._drift(now)
        return float(max(seconds, 0.1 * expected))


def nearest_canary(canaries: pd.DataFrame):
    """Return the function time (s) -> seconds that the canary nearest in time took; None without canaries."""
    if canaries.empty:
        return None
    at_s = canaries["begin_s"].to_numpy()
    took_s = (canaries["end_s"] - canaries["begin_s"]).to_numpy()
    return lambda now: float(took_s[np.abs(at_s - now).argmin()])
