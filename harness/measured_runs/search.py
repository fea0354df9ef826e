"""A search for the constants with which replays of several loads come out as they were measured."""

from collections.abc import Callable, Iterable, Sequence

import numpy as np
from scipy.optimize import lsq_linear

ERROR = 0.03
"""[chosen] Relative error of a value that a good model still has. A prior is weighed against it."""
STEP, FURTHEST = 0.25, 4.0
"""Step of the numerical differences, and largest step of one iteration, in standard deviations of the priors."""
ITERATIONS, DAMPED, GAIN = 4, ((1.0, 0.5), (0.25, 0.125)), 0.02
"""`DAMPED`: shares of a move that are tried, two at once. `GAIN`: share of the loss that an iteration has to save for
another one to follow."""
UNKNOWN = 0.9
"""Share of its prior's deviation above which a constant is as unknown as it was before the fit. [chosen]"""

Replay = Callable[[Sequence[np.ndarray]], list[np.ndarray]]
"""From vectors of constants to the predicted values of each: a row for each load."""


class Search:
    """Damped Gauss-Newton over the logarithms of predicted over measured values.

    Each constant has a prior: it stays at its default unless the loads tell otherwise. Nothing is random.
    A point of it is a vector: by how many standard deviations of its prior each constant is off the prior's middle.

    `measured`: a row for each load; NaN where nothing was measured. `widths`: standard deviations of the priors.
    `factors`: number of the first constants that are factors, with widths of their logarithms; the others are never
    negative. `delays`: of the last constants, whose slopes need no replay, the change of each value with the constant.
    """

    def __init__(
        self,
        measured: np.ndarray,
        default: np.ndarray,
        widths: np.ndarray,
        replay: Replay,
        factors: int = 0,
        delays: Sequence[np.ndarray] = (),
    ) -> None:
        self.middle = default
        self._measured, self._widths, self._replay = measured, widths, replay
        self._factors, self._delays = factors, delays
        self._replayed = len(default) - len(delays)

    def begin_at(self, middles: Iterable[np.ndarray]) -> None:
        """Let the search and the priors begin at those of these constants with which the loads come out best."""
        losses, zero = [], np.zeros(len(self.middle))
        starts = list(middles)
        for self.middle in starts:
            off = self._off(self._at([zero])[0], zero)
            losses.append(off @ off)
        self.middle = starts[int(np.argmin(losses))]

    def minimum(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the constants, and the deviations after the fit, as shares of those of the priors."""
        point = np.zeros(len(self.middle))
        (values,) = self._at([point])
        lower = np.full(len(point), -np.inf)
        lower[self._factors :] = -(self.middle / self._widths)[self._factors :]
        for _ in range(ITERATIONS):
            off, slopes = self._off(values, point), self._slopes(point, values)
            bounds = np.minimum(np.maximum(lower - point, -FURTHEST), -1e-9), np.full(len(point), FURTHEST)
            move = lsq_linear(slopes, -off, bounds).x
            best, loss = None, off @ off
            for shares in DAMPED:
                points = [point + share * move for share in shares]
                for at, new_values in zip(points, self._at(points), strict=True):
                    tried = self._off(new_values, at)
                    if tried @ tried < loss:
                        best, loss = (at, new_values), tried @ tried
                if best is not None:
                    break
            if best is None:
                break
            point, values = best
            if loss > (1 - GAIN) * (off @ off):
                break
        return self._constants(point), np.sqrt(np.diag(np.linalg.inv(slopes.T @ slopes)))

    def _constants(self, point: np.ndarray) -> np.ndarray:
        first = self._factors
        factors = self.middle[:first] * np.exp(self._widths[:first] * point[:first])
        return np.concatenate([factors, np.maximum(0.0, self.middle[first:] + self._widths[first:] * point[first:])])

    def _at(self, points: Iterable[np.ndarray]) -> list[np.ndarray]:
        return self._replay([self._constants(point) for point in points])

    def _off(self, values: np.ndarray, point: np.ndarray) -> np.ndarray:
        """Return the residuals whose squares are summed: errors against the measurement, and the distance from the
        priors."""
        return np.concatenate([np.nan_to_num(np.log(values / self._measured)).ravel() / ERROR, point])

    def _slopes(self, point: np.ndarray, values: np.ndarray) -> np.ndarray:
        """Return the slopes of `_off`."""
        steps = STEP * np.eye(len(point))[: self._replayed]
        off = self._off(values, point)
        near = self._at(point + steps)
        columns = [(self._off(nearby, point + step) - off) / STEP for nearby, step in zip(near, steps, strict=True)]
        for at, delay in enumerate(self._delays, start=self._replayed):
            later = self._widths[at] * delay / values / ERROR
            later = np.where(np.isnan(self._measured), 0.0, later).ravel()
            columns.append(np.concatenate([later, np.eye(len(point))[at]]))
        return np.stack(columns, axis=1)
