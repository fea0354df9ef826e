"""How late a server of ours ran its own timers during a run, from its scraped metrics.

Its loop serves sockets and engines alike; a lag that is long beside a packet says that the machine starved the server,
so what users felt was not the engine's doing. Names: `engines.endpoint.metrics`. Other servers do not say.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np
import pandas as pd

from rehearsal.harness.metrics.histogram import quantile
from rehearsal.harness.metrics.live_window import Window

LAG = "rehearsal_loop_lag_seconds"
_BUCKET, _MOST = f"{LAG}_bucket", "rehearsal_loop_lag_most_seconds"


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
    names = np.asarray(scrape["name"], str)
    told = scrape.loc[names == _BUCKET]
    bounds = [float(json.loads(labels)["le"]) for labels in told["labels"].astype(str)]
    counts = told.assign(le=bounds).pivot_table(index="t_s", columns="le", values="value").sort_index(axis=1)
    polls_s = counts.index.to_numpy(float)
    first = max(0, int(np.searchsorted(polls_s, window.begin_s, side="right")) - 1)
    last = min(polls_s.size - 1, int(np.searchsorted(polls_s, window.end_s)))
    if last <= first:
        return None
    during = np.diff((counts.iloc[last] - counts.iloc[first]).to_numpy(float), prepend=0.0)
    p99_s = quantile(counts.columns[:-1].to_numpy(float).tolist(), during.tolist(), 0.99)
    if p99_s is None or (during < 0).any():  # it was started anew meanwhile
        return None
    told_s = scrape["t_s"].to_numpy(float)
    recent = (names == _MOST) & (told_s > polls_s[first]) & (told_s <= polls_s[last])
    largest_s = scrape.loc[recent, "value"].dropna()
    return LoopLag(p99_s, float(largest_s.max()) if len(largest_s) else None, round(during.sum()))
