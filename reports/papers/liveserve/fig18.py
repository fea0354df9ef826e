"""Fig. 18: playback continuity over time under bursts, c = 32, 12 requests a second; curves without numbers."""

from typing import Any

import numpy as np
import pandas as pd

from harness.request_tables.playback import Playback, is_continuous
from harness.request_tables.request_table import BARGED_IN, COMPLETED
from reports.claims.claim import Claim
from reports.claims.quantities import Panels, difference, of, smallest, value
from reports.claims.stated import claim, level, moves
from reports.figures.forms import Plot, custom, figure
from reports.figures.frames import finished
from reports.figures.style import engine_looks
from reports.papers.liveserve.common import BURSTS, PAIR, experiment
from reports.runs.measured import Measured

TITLE = "Fig. 18: continuous replies over time, ShareGPT in speech, BurstGPT arrivals, c = 32"

PS = [0.0, 0.5]
_PANEL = "c = 32"
_LOAD = {**BURSTS, "requests": 384, "rate": 12.0, "c": 32}

EXPERIMENTS = {_PANEL: experiment("fig18", PAIR, "burstgpt_fit", _LOAD, timeout_s=900, p=PS)}
QUICK = {"requests": "192", "p": "0"}


def timeline(point: Measured) -> tuple[np.ndarray, np.ndarray]:
    """Times in s, and from each on the share of replies begun so far that are unbroken; without interrupted replies.

    A reply without audio has begun, and is broken, at the end of its user's turn.
    """
    turns = point.all_requests
    turns = turns.loc[turns["spoken"] & (turns["status"] != BARGED_IN)]
    events = point.record.table("events")
    audio = dict(iter(events.loc[events["kind"] == "audio"].groupby(["session", "turn"])))
    begun, broken = [], []
    for row in turns.itertuples():
        packets = audio.get((row.session, row.turn))
        begun.append(row.turn_end_s if packets is None else packets["t"].iloc[0])
        broken.append(row.turn_end_s if packets is None else _break_s(packets, row.status == COMPLETED))
    begun_s, broken_s = np.sort(begun), np.sort(broken)
    times = np.unique(np.r_[begun_s, broken_s[np.isfinite(broken_s)]])
    of_begun = np.searchsorted(broken_s, times, side="right") / np.searchsorted(begun_s, times, side="right")
    return times, 1 - of_begun


def _break_s(packets: pd.DataFrame, whole: bool) -> float:
    """Return the time of the packet that ended the first pause above 100 ms; for a failed reply at the latest its
    last packet."""
    player = Playback()
    for t, audio_s in zip(packets["t"], packets["value"], strict=True):
        if not is_continuous(player.arrive(t, audio_s)):
            return t
    return np.inf if whole else packets["t"].iloc[-1]


def _at_first(point: Measured) -> float | None:
    """The share when a tenth of the replies have begun."""
    times, share = timeline(point)
    turns = point.all_requests
    tenth_s = (turns["turn_end_s"] + turns["audio_ttfp_s"]).quantile(0.1)
    before = np.searchsorted(times, tenth_s, side="right")
    return float(share[before - 1]) if before else None


def _at_end(point: Measured) -> float | None:
    """The share when all replies have begun and ended."""
    share = timeline(point)[1]
    return float(share[-1]) if share.size else None


_BUSY = (
    "hardly a reply pauses under either system: at c = 32 each pair of thinker and talker has eight requests in "
    "flight, and generates speech faster than it plays (P90 RTF without barge-in 0.27 and 0.29)"
)


def _higher(p: float, text: str, fact: str = "") -> Claim:
    return claim(
        f"p = {p:g}: {text} (share at the end, LiveServe's less the baseline's)",
        moves((0.01, 1.0), words="higher"),
        difference(_at_end, of(_PANEL, "liveserve", p=p), less=of(_PANEL, "vllm_omni", p=p)),
        _BUSY,
        fact=fact,
    )


_FACT = "Section 7.4, Fig. 18: without barge-in both start at full continuity, LiveServe ends higher"

CLAIMS = {
    "fig18-start": claim(
        "p = 0: both start at full continuity (smaller share when a tenth of the replies have begun)",
        level(1.0, "%", within=0.02, words="full"),
        smallest(*(value(_at_first, of(_PANEL, engine, p=0.0)) for engine in PAIR)),
        "replies break among the first tenth",
        fact=_FACT,
    ),
    "fig18-p0": _higher(0.0, "LiveServe ends higher", _FACT),
    "fig18-p0.5": _higher(0.5, "LiveServe keeps a clearer advantage"),
}


def _curves(p: float) -> Plot:
    """Median and range over seeds, of each the share at the same time since its first reply."""

    def fill(axes: Any, panels: Panels) -> None:
        for engine, look in engine_looks(*PAIR).items():
            timelines = [timeline(point) for point in finished(of(_PANEL, engine, p=p).points(panels))]
            clock = np.linspace(0, max([times[-1] for times, _ in timelines], default=0), 300)
            places = [np.searchsorted(times - times[0], clock, side="right") for times, _ in timelines]
            shares = [np.r_[1.0, share][place] for (_, share), place in zip(timelines, places, strict=True)]
            if shares:
                low, middle, high = np.min(shares, 0), np.median(shares, 0), np.max(shares, 0)
                axes.fill_between(clock, low, high, color=look.colour, alpha=0.12, lw=0)
                axes.plot(clock, middle, **look.stroke, label=engine)

    return custom(fill, title=f"p = {p:g}", xlabel="time since the first arrival, s", percent=(0, 1), xlim=(0, None))


draw = figure(
    TITLE,
    *map(_curves, PS),
    sharey=True,
    caption="Share of started replies without a pause above 100 ms so far, without interrupted ones. 384 "
    "requests at 12/s on average, at most 32 concurrent. Lines are medians over the seeds; areas span "
    "the seeds.",
)
