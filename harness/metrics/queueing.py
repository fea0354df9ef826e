"""What theory expects of a queue: one server, Poisson arrivals, service of any law (M/G/1)."""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike


class Mg1(NamedTuple):
    """`utilisation` is λ E[S]; `wait_s` the mean wait before service, None where the queue grows without end."""

    utilisation: float
    wait_s: float | None


def mg1(rate: float, service_s: ArrayLike) -> Mg1:
    """Pollaczek and Khinchine: W_q = λ E[S²] / (2 (1 − λ E[S])), in arrival order (Nova, eq. 6).

    `rate`: arrivals per s; `service_s`: times of service that were measured, shape (requests,), of one request at a
    time. ValueError without any.
    """
    times = np.asarray(service_s, float)
    if not times.size or not np.isfinite(times).all() or times.min() < 0:
        raise ValueError("a queue needs times of service, all known and none negative")
    utilisation = float(rate * times.mean())
    if utilisation >= 1:
        return Mg1(utilisation, None)
    return Mg1(utilisation, float(rate * np.square(times).mean() / (2 * (1 - utilisation))))
