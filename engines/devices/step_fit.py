"""The fit of step times to measured steps: least squares on relative errors, with coefficients of at least zero."""

from collections.abc import Sequence

import numpy as np
from scipy.optimize import nnls

from engines.devices.step_time import Totals, term


def design_of(steps: Sequence[Totals], names: Sequence[str]) -> np.ndarray:
    """Return the value of each term (columns) in each step (rows)."""
    columns = [term(name) for name in names]
    return np.array([[column(total) for column in columns] for total in steps], dtype=float)


def least_relative(design: np.ndarray, seconds: np.ndarray) -> np.ndarray:
    """Return the coefficients, in s per unit of each column, that minimise sum((predicted - measured) / measured)^2."""
    scale = np.maximum(design.max(axis=0), 1e-12)  # the columns differ by nine orders of magnitude
    solution, _ = nnls(design / scale / seconds[:, None], np.ones(len(seconds)))
    return solution / scale
