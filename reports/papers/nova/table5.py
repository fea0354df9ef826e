"""Table V: seconds that vision and prefill of a request take, and how long it waits for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from reports.claims.bands import Band, of_mean, of_model
from reports.claims.quantities import average, each, largest, of_turns, quotient, ratio, value
from reports.claims.stated import claim, level, times
from reports.figures.forms import behind, figure, lines
from reports.figures.style import engine_looks
from reports.papers.nova.common import EVERYBODY, RATES, REQUESTS, at, steps
from reports.runs.measured import Measured

if TYPE_CHECKING:
    import pandas as pd

TITLE = "Table V: processing time, waiting time and the wait of an M/G/1 queue"

EXPERIMENTS = EVERYBODY
QUICK = {"requests": "120"}

PAPER: dict[str, dict[float, float]] = {
    "processing": dict(zip(RATES, (1.39, 1.44, 1.43, 1.42, 1.38, 1.35), strict=True)),
    "waiting": dict(zip(RATES, (0.60, 1.14, 2.06, 3.82, 8.49, 33.57), strict=True)),
    "theory": dict(zip(RATES[:5], (0.51, 1.00, 1.86, 4.32, 20.99), strict=True)),
}

SERVICE_CV = 0.27
"""Standard deviation of the paper's services over their mean, at most: by eq. (6) from its rows of both."""
WAIT_ERROR = {"0.3 to 0.6": 0.46, "0.3 to 0.7": 0.57, "0.7": 1.19, "0.8": 0.81}
"""1.96 standard deviations of the mean wait of 500 Poisson arrivals over its expectation, at these rates together or at
one: 20,000 queues with Table V's services, gamma-distributed with `SERVICE_CV`."""


def waits(rates: str) -> Band:
    """Band of waits at these rates."""
    because = f"mean waits of {REQUESTS} arrivals at an M/G/1 queue with Table V's services"
    return of_model(WAIT_ERROR[rates], because)


PROCESSING = "Table V: processing times from 1.39 to 1.35 s, which rise and fall"
WAITING = "Table V, Sec. V-C: waits from 0.60 to 8.49 s, close to an M/G/1 queue's"
WAIT = of_turns("queueing_entry_s")


class Mg1(NamedTuple):
    """`utilisation` is λ E[S]; `wait_s` the mean wait before service, None where the queue grows without end."""

    utilisation: float
    wait_s: float | None


def mg1(rate: float, service_s: ArrayLike) -> Mg1:
    """One server, Poisson arrivals, service of any law, in arrival order (Nova, eq. 6).

    Pollaczek and Khinchine: W_q = λ E[S²] / (2 (1 − λ E[S])).

    `rate`: arrivals per s; `service_s`: times of service that were measured, shape (requests,), of one request at a
    time. ValueError without any.
    """
    services = np.asarray(service_s, float)
    if not services.size or not np.isfinite(services).all() or services.min() < 0:
        raise ValueError("a queue needs times of service, all known and none negative")
    utilisation = float(rate * services.mean())
    if utilisation >= 1:
        return Mg1(utilisation, None)
    return Mg1(utilisation, float(rate * np.square(services).mean() / (2 * (1 - utilisation))))


def services_s(point: Measured) -> pd.Series:
    """S of each request: its pass of vision and its pass of prefill, which follows."""
    front = steps(point, "vision", "prefill").sort_values("t_s")
    return front.loc[front["stage"] == "vision", "dt_s"].reset_index(drop=True) + front.loc[
        front["stage"] == "prefill", "dt_s"
    ].reset_index(drop=True)


def processing_s(point: Measured) -> float | None:
    """E[S]."""
    services = services_s(point)
    return float(services.mean()) if len(services) else None


def theory_s(point: Measured) -> float | None:
    """Equation (6), the wait of an M/G/1 queue with the services of this run; None where it is overloaded."""
    return mg1(point.params["rate"], services_s(point)).wait_s


def _of_paper(quantity: Any, what: str, rate: float) -> Any:
    return each(value(quantity, at(rate)), lambda seconds: seconds / PAPER[what][rate])


SERVICES = of_mean(REQUESTS, SERVICE_CV)
CLAIMS = {
    "table5-processing": claim(
        "at 0.3 to 0.8 requests/s vision and prefill of a request take 1.39, 1.44, 1.43, 1.42, 1.38 and 1.35 s "
        "(largest deviation of ours)",
        level(0.0, "%", Band(0, SERVICES.relative, SERVICES.because)),
        largest(*(each(_of_paper(processing_s, "processing", rate), lambda x: abs(x - 1)) for rate in RATES)),
        fact=PROCESSING,
    ),
    "table5-falls": claim(
        "that rises and then falls, as shares follow the load: at 0.8 by 6 % below 0.4",
        times(1.35 / 1.44, SERVICES),
        ratio(processing_s, at(0.8), to=at(0.4)),
        fact=PROCESSING,
    ),
    "table5-waiting": claim(
        "they wait 0.60, 1.14, 2.06, 3.82 and 8.49 s at 0.3 to 0.7 (ours over the paper's, mean)",
        level(1.0, "×", waits("0.3 to 0.7")),
        average(*(_of_paper(WAIT, "waiting", rate) for rate in RATES[:5])),
        fact=WAITING,
    ),
    "table5-overload": claim(
        "at 0.8 the GPU is overloaded and they wait 33.57 s", level(33.57, "s", waits("0.8")), value(WAIT, at(0.8))
    ),
    "table5-theory": claim(
        "measured over M/G/1 at 0.3 to 0.6: 1.18, 1.14, 1.11, 0.88, mean 1.08",
        level(1.08, "×", waits("0.3 to 0.6")),
        average(*(quotient(value(WAIT, at(r)), value(theory_s, at(r))) for r in RATES[:4])),
        fact=WAITING,
    ),
}

_OURS = {rate: at(rate) for rate in RATES}
_AXES = {"style": engine_looks("measured", "M/G/1 queue"), "xlabel": "requests per second"}
draw = figure(
    TITLE,
    lines(
        processing_s,
        {"measured": _OURS},
        marks={"measured": PAPER["processing"]},
        ylim=(0, 1.6),
        ylabel="vision and prefill of a request, s",
        **_AXES,
    ),
    lines(
        None,
        {
            "measured": {rate: value(WAIT, setting) for rate, setting in _OURS.items()},
            "M/G/1 queue": {rate: value(theory_s, setting) for rate, setting in _OURS.items()},
        },
        marks={"measured": PAPER["waiting"], "M/G/1 queue": PAPER["theory"]},
        yscale="log",
        ylabel="waiting for vision, s",
        **_AXES,
    ),
    points=behind(_OURS.values()),
    caption="Above capacity the queue has no theory.",
)
