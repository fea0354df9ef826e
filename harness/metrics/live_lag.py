"""How late a server of ours ran its own timers during a run, from its scraped metrics.

Its loop serves sockets and engines alike; a lag that is long beside a packet says that the machine starved the server,
so what users felt was not the engine's doing. Names: `engines.endpoint.metrics`. Other servers do not say.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from harness.metrics.live_window import Window
from harness.metrics.scraped_histogram import observed

LAG = "rehearsal_loop_lag_seconds"
_MOST = "rehearsal_loop_lag_most_seconds"


@dataclass(frozen=True)
class LoopLag:
    """Over `n` timers, in s. `p99_s`: interpolated in the server's histogram; `max_s`: the largest that it told."""

    p99_s: float
    max_s: float | None
    n: int


def loop_lag(scrape: pd.DataFrame, window: Window) -> LoopLag | None:
    """From the last poll before `window` to the first after it; None where the server does not tell it twice.

    `scrape`: columns t_s, name, labels, value, as `harness.live.run.scrape` leaves them.
    """
    timers = observed(scrape, LAG, window.begin_s, window.end_s)
    p99_s = None if timers is None else timers.quantile(0.99)
    if timers is None or p99_s is None:
        return None
    told_s = scrape["t_s"].to_numpy(float)
    recent = (
        (np.asarray(scrape["name"], str) == _MOST) & (told_s > timers.first_s) & (told_s <= timers.last_s)
    )
    largest_s = scrape.loc[recent, "value"].dropna()
    return LoopLag(p99_s, float(largest_s.max()) if len(largest_s) else None, timers.n)
