"""Times between the points of measured grids: straight lines between logarithms, as kernels follow powers of sizes.

Beyond a grid's last point the line from the two before goes on; before its first the first holds, as nothing is shorter
than the measured times. Logarithms differ in their last bits between machines, so results are rounded.
"""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from math import exp, log
from typing import Any

import numpy as np

from engines.devices.kernels.grids import Line, StageKernels

LEAST_MS = 1e-6
"""Least ms, for the logarithm of an operation without time."""

BEFORE_UNIT = 128.0
"""Tokens added to the number before a prompt, so that 0 has a logarithm."""

FINER = 8
"""Straight pieces into which each line of a decode's context is divided, so that a step needs no logarithm."""

LARGEST_FALL = 0.03
"""Share by which a step may take less than a smaller one."""

SWEPT_CONTEXTS, LEAST_PROMPT = (1024, 4096), 64
"""Contexts of decodes, and fewest new tokens of prompts, at which steps are compared."""

Place = tuple[int, float]
"""A place between two points of an axis: the lower one's index, and the fraction of the way to the next; beyond 1
behind the last."""


class LogLine:
    """One axis of whole numbers; the time at each is computed once."""

    def __init__(self, *lines: Line) -> None:
        """Add up lines over the same axis."""
        self._x = [log(each) for each in lines[0].at]
        self._y = [_log(sum(ms)) for ms in zip(*(line.ms for line in lines), strict=True)]
        self._ms: dict[int, float] = {}

    def ms(self, at: int) -> float:
        ms = self._ms.get(at)
        if ms is None:
            ms = self._ms[at] = _ms(between(self._y, *place(self._x, log(at))))
        return ms


class GridTimes:
    """ms of the kernels of one stage, of all layers."""

    def __init__(self, kernels: StageKernels) -> None:
        lines = [line for line in (kernels.products, kernels.experts, kernels.allreduce) if line is not None]
        self._over_tokens = LogLine(*lines)
        self._head = LogLine(kernels.head)
        self._predictor = LogLine(kernels.predictor) if kernels.predictor is not None else None
        decodes, prompts = kernels.decodes, kernels.prompts
        self._requests = [log(each) for each in decodes.requests]
        self._decodes = [[_log(ms) for ms in row] for row in decodes.ms]
        ends = [log(each) for each in decodes.context]
        steps = [ends[0]]
        for low, high in pairwise(ends):
            steps += [low + (high - low) * part / FINER for part in range(1, FINER + 1)]
        self._between = [place(ends, step) for step in steps]
        self._context = [round(exp(step), 3) for step in steps]
        self._rows: dict[int, list[float]] = {}
        self._prompts = [log(each) for each in prompts.prompts]
        self._new = [log(each) for each in prompts.new]
        self._before = [log(each + BEFORE_UNIT) for each in prompts.before]
        self._planes = [[[_log(ms) for ms in row] for row in plane] for plane in prompts.ms]

    def over_tokens(self, tokens: int) -> float:
        """Return the ms of products, experts and all-reduces of a step of `tokens` tokens."""
        return self._over_tokens.ms(tokens)

    def head(self, samples: int) -> float:
        return self._head.ms(samples)

    def predictor(self, samples: int) -> float:
        """Return the ms of the code predictor; 0 without one."""
        return self._predictor.ms(samples) if self._predictor is not None else 0.0

    def decodes(self, requests: int, context: float) -> float:
        """Return the ms of attention of `requests` decodes, which see `context` tokens each on average."""
        row = self._rows.get(requests)
        if row is None:
            row = self._rows[requests] = self._row(requests)
        i, w = place(self._context, context)
        return between(row, i, w)

    def _row(self, requests: int) -> list[float]:
        i, w = place(self._requests, log(requests))
        return [_ms(_over(self._decodes, i, w, *at)) for at in self._between]

    def prompts(self, prompts: float, new: float, before: float) -> float:
        """Return the ms of attention of `prompts` prompts of `new` tokens each behind `before` others."""
        h, u = place(self._prompts, log(prompts))
        i, v = place(self._new, log(new))
        j, w = place(self._before, log(before + BEFORE_UNIT))
        low = _over(self._planes[h], i, v, j, w)
        return _ms(low + u * (_over(self._planes[h + 1], i, v, j, w) - low) if u else low)

    def decode_step_ms(self, requests: int, context: float) -> float:
        return self.over_tokens(requests) + self.head(requests) + self.decodes(requests, context)

    def prompt_step_ms(self, new: int, before: float, requests: int = 0, context: float = 0.0) -> float:
        decode_ms = self.decodes(requests, context) if requests else 0.0
        return self.over_tokens(new + requests) + self.head(1 + requests) + self.prompts(1, new, before) + decode_ms


def largest_fall(kernels: StageKernels) -> float:
    """Return the largest share by which a step takes less than one of fewer decodes, or of a shorter prompt, at powers
    of two: sizes between them do not fill their tiles, and really take up to a tenth longer than the next."""
    times = GridTimes(kernels)
    decodes = [
        [times.decode_step_ms(n, context) + times.predictor(n) for n in kernels.decodes.requests]
        for context in SWEPT_CONTEXTS
    ]
    prompts = [times.prompt_step_ms(new, 0) for new in kernels.prompts.new if new >= LEAST_PROMPT]
    return max(map(fall, [*decodes, prompts]))


def fall(ms: Any) -> float:
    """Return the largest share by which a time is below one of smaller sizes on any axis."""
    most = np.asarray(ms)
    for axis in range(most.ndim):
        most = np.maximum.accumulate(most, axis)
    return float((1 - np.asarray(ms) / most).max())


def place(axis: Sequence[float], at: float) -> Place:
    if at <= axis[0] or len(axis) == 1:
        return 0, 0.0
    i = min(bisect_right(axis, at), len(axis) - 1) - 1
    return i, (at - axis[i]) / (axis[i + 1] - axis[i])


def between(values: Sequence[float], i: int, w: float) -> float:
    return values[i] + w * (values[i + 1] - values[i]) if w else values[i]


def _over(table: Sequence[Sequence[float]], i: int, v: float, j: int, w: float) -> float:
    low = between(table[i], j, w)
    return low + v * (between(table[i + 1], j, w) - low) if v else low


def _log(ms: float) -> float:
    return log(max(LEAST_MS, ms))


def _ms(logarithm: float) -> float:
    return round(exp(logarithm), 4)
