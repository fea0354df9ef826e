"""What a batch beside the users of an endpoint came to while the load was the planned one.

A document may take longer than the steady window, and the last ones are cut. So tokens are counted as they come, in
whichever document, and not by documents that ended.
"""

import numpy as np
import pandas as pd

from harness.metrics.live_window import Window, on_line_mean
from harness.metrics.metric import Measured

NAMES = (
    "batch_tps",
    "batch_in_flight",
    "batch_completed",
    "batch_failed",
    "batch_cut",
    "batch_slip_p99",
)


def without_batch(asked: int | None) -> dict[str, Measured]:
    """Returns the metrics of a run that had no documents beside. `asked`: 0 where it is the reference of those that
    had.
    """
    if asked is None:
        return dict.fromkeys(NAMES, (None, 0, 0))
    return {**dict.fromkeys(NAMES, (0.0, 0, 0)), "batch_slip_p99": (None, 0, 0)}


def batch_metrics(events: pd.DataFrame, slips_s: np.ndarray, window: Window) -> dict[str, Measured]:
    """By the names of `harness.metrics.live_definitions`. `events`: of the documents; `slips_s`: of their sends."""
    kinds, t = events["kind"].astype(str).to_numpy(), events["t"].to_numpy(float)
    inside = (t >= window.begin_s) & (t <= window.end_s)
    text = np.isin(kinds, ["first_text", "text"])
    length_s = window.end_s - window.begin_s
    arrived = float(events["value"].to_numpy(float)[text & inside].sum()) * _tokens_a_message(events)
    started, ended, failed = (kinds == kind for kind in ("turn_start", "turn_done", "turn_failed"))
    n = int(started.sum())
    sent = slips_s[~np.isnan(slips_s)]
    return {
        "batch_tps": (arrived / length_s if length_s > 0 else None, int((text & inside).sum()), 0),
        "batch_in_flight": (on_line_mean(_until_cut(events), window), n, 0),
        "batch_completed": (float((ended & inside).sum()), n, 0),
        "batch_failed": (float((failed & inside).sum()), n, 0),
        "batch_cut": (float(n - ended.sum() - failed.sum()), n, 0),
        "batch_slip_p99": (float(np.quantile(sent, 0.99)) if sent.size else None, sent.size, 0),
    }


def _tokens_a_message(events: pd.DataFrame) -> float:
    """By the usage that servers report at the end of a reply; 1 where none did, as of most."""
    kinds = events["kind"].astype(str).to_numpy()
    finished = events.loc[kinds == "finish"]
    messages = events.loc[
        np.isin(kinds, ["first_text", "text"]) & np.isin(events["session"], finished["session"])
    ]
    return float(finished["value"].sum() / len(messages)) if len(messages) else 1.0


def _until_cut(events: pd.DataFrame) -> pd.DataFrame:
    """Documents as sessions that are on line; one that failed is so no longer, though its place waits."""
    return events.loc[events["kind"].astype(str).isin(["session_start", "session_end"])]
