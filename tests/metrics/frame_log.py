"""Event logs of interaction sessions as a tick gateway would write them, with answers that a test prescribes."""

from collections.abc import Callable
from math import ceil
from typing import Any

import numpy as np
import pandas as pd

from harness.events.log import EventLog
from harness.request_tables.frame_table import Beat, frame_table

B = 2.0
BEAT = Beat(budget_s=B, cap_s=1.6, target_s=0.6)
NETWORK_S = 0.005
FAST_S = 0.004

Answer = Callable[[int, int, float], tuple[float, float]]
"""(session, frame, time of the tick) -> (latency in s, tokens)."""


def spoke(session: int, frame: int, at_s: float) -> tuple[float, float]:
    return FAST_S, 12


def trace_of(sessions: int, frames: int) -> pd.DataFrame:
    """Sessions that begin a 64th of a second apart."""
    session, turn = (axis.ravel() for axis in np.mgrid[:sessions, :frames])
    begin_s = session / 64 + B * turn + 1 / 128
    return pd.DataFrame({"session": session, "turn": turn, "arrival_s": begin_s, "audio_s": B, "network_s": NETWORK_S})


def events_of(trace: pd.DataFrame, answer: Answer = spoke) -> pd.DataFrame:
    """The log of a run in which every frame is fed at the first tick after it is complete."""
    log = EventLog()
    arrivals_s: Any = dict(iter(trace.groupby("session")["arrival_s"]))
    for session, begins_s in arrivals_s.items():
        log.event(begins_s.min(), "session_start", session, 0)
        log.event(begins_s.min() + 2 * NETWORK_S, "admitted", session, 0)
    ticks: dict[int, list[tuple[int, int]]] = {}
    for session, frame, arrival_s in zip(trace["session"], trace["turn"], trace["arrival_s"], strict=True):
        log.event(arrival_s + B, "turn_end", session, frame, value=0.0)
        ticks.setdefault(ceil((arrival_s + B + NETWORK_S) / B - 1e-9), []).append((session, frame))
    for tick, fed in sorted(ticks.items()):
        at_s = tick * B
        log.event(at_s, "tick", -1, tick, value=len(fed))
        longest_s = 0.0
        for session, frame in fed:
            latency_s, tokens = answer(session, frame, at_s)
            longest_s = max(longest_s, latency_s)
            log.event(at_s, "fed", session, frame, "thinker", 44)
            log.event(at_s + latency_s, "frame_out", session, frame, "thinker", tokens)
            log.event(at_s + latency_s + NETWORK_S, "frame", session, frame, value=tokens)
        log.event(at_s + longest_s, "tick_end", -1, tick, value=float(longest_s >= BEAT.cap_s))
    for session, begins_s in arrivals_s.items():
        log.event(begins_s.max() + 2 * B, "session_end", session, 0)
    return log.events().to_pandas()


def add(events: pd.DataFrame, *rows: tuple) -> pd.DataFrame:
    if not rows:
        return events
    extra = pd.DataFrame(rows, columns=["t", "kind", "session", "turn", "value"]).assign(stage="")
    return pd.concat([events.astype({"kind": str, "stage": str}), extra], ignore_index=True)


def table_of(sessions: int, frames: int, answer: Answer = spoke) -> pd.DataFrame:
    trace = trace_of(sessions, frames)
    return frame_table(events_of(trace, answer), trace, BEAT)


def steps_of(t_s: np.ndarray, used: np.ndarray, blocks: int = 1000, requests: int = 4) -> pd.DataFrame:
    """A step of 4 ms that ends at each time, with so many blocks in use then."""
    times = pd.DataFrame({"t_s": np.asarray(t_s, float) - 0.004, "kv_used": used})
    return times.assign(dt_s=0.004, stage="thinker", replica=0, requests=requests, kv_blocks=blocks)
