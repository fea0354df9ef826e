"""A live run over time: the wait of each turn above; concurrent, rejected and lost sessions below. And the parts of one
wait."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from harness.request_tables.request_table import FAILED
from harness.request_tables.steady_window import counted
from harness.request_tables.wait_parts import ANSWER, END_OF_TURN
from harness.slo.targets import name_of
from reports.figures.drawing import legend, note, plain_log, sheet, totals, whole_numbers
from reports.figures.picture import LeftOut, Picture
from reports.figures.style import BROKEN, INK, MUTED, SPEECH, looks
from reports.live.live_record import all_of, busiest, on_line, one
from reports.live.live_verdict import targets
from reports.runs.measured import Measured, Run
from reports.tables.labels import setting

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME = "live_over_time"
BUCKET_S = 5.0
_COLUMNS = 3
WAIT, WAIT_TITLE = "wait_parts", "The wait of one turn, in its parts"
SPOKEN = 0.25
"""Length of the user's speech that is drawn, in waits."""


def draw(run: Run) -> Picture | LeftOut:
    wait = "TTFP" if run.spoken else "TTFT"
    title = f"The run over time: {wait}, sessions, failures"
    shown = {load: one(load.points) for load in busiest(run)[:_COLUMNS]}
    if run.frames or not any(len(point.all_requests) for point in shown.values()):
        return LeftOut(NAME, title, "no live point has turns")
    where = setting(dict(next(iter(shown)).cell))
    title = f"{title}, {where}" if where else title
    figure, axes = sheet(2 * len(shown), title, 2.6, len(shown), sharex=True, sharey="row")
    above, below = axes[: len(shown)], axes[len(shown) :]
    look, family = looks(run.variants), "audio_ttfp_" if run.spoken else "ttft_p"
    wanted = [target for target in targets(run) if target.metric.startswith(family)]
    for (load, point), upper, lower in zip(shown.items(), above, below, strict=True):
        style = look[load.variant]
        _waits(upper, point, "audio_ttfp_s" if run.spoken else "ttft_s", style.colour)
        for target in wanted:
            level_ms = 1000 * target.bound
            upper.axhline(level_ms, color=BROKEN, lw=1.2, ls=(0, (5, 2)), zorder=1)
            note(upper, f"target {name_of(target.metric)} {target.asked}", level_ms, 3, colour=BROKEN)
        _sessions(lower, point, style.colour)
        for panel in (upper, lower):
            _left_out(panel, point)
        invalidity = ", INVALID" if point.record.invalid else ""
        upper.set_title(f"{load.variant.label}, seed {point.seed}{invalidity}", color=style.colour, weight="bold")
        lower.set_xlabel("elapsed time, s")
    above[0].set_ylabel(f"{wait}, ms (log scale)")
    below[0].set_ylabel("sessions")
    legend(figure)
    aim = ", dashed red is the target" if wanted else ""
    caption = (
        "Above: a dot for each answered turn, at the end of its user's speech; lines are P50 and P90 "
        f"over {BUCKET_S:g} s{aim}. Crosses at the upper edge are turns that failed or were never answered. "
        "Below: concurrent sessions, and the total of rejected sessions and failed turns. Turns in "
        f"the shaded ramp and drain are in no metric. {all_of(list(shown.values()))}"
    )
    return Picture(NAME, title, figure, caption)


def _waits(axes: Axes, point: Measured, column: str, colour: str) -> None:
    turns = point.all_requests
    ends_s, waits_ms = turns["turn_end_s"].to_numpy(float), 1000 * turns[column].to_numpy(float)
    answered = ~np.isnan(waits_ms)
    axes.plot(ends_s[answered], waits_ms[answered], ".", ms=6, color=colour, alpha=0.5, mew=0, label="one turn")
    bucket = ends_s[answered] // BUCKET_S
    for percentile, line in ((50, "-"), (90, "--")):
        levels = pd.Series(waits_ms[answered]).groupby(bucket).quantile(percentile / 100)
        middle = np.asarray(levels.index, float) * BUCKET_S + BUCKET_S / 2
        axes.plot(middle, levels, ls=line, color=INK, lw=1.4, label=f"P{percentile} of {BUCKET_S:g} s")
    axes.set_yscale("log")
    # A turn that was cut before its first packet has no wait for it.
    lost = ~answered & (turns["status"] == FAILED).to_numpy()
    if lost.any():
        top = axes.get_xaxis_transform()
        axes.plot(ends_s[lost], np.full(lost.sum(), 0.97), "x", ms=5, mew=1.3, color=BROKEN, transform=top)
    plain_log(axes.yaxis)


def _left_out(axes: Axes, point: Measured) -> None:
    """Shade ramp and drain."""
    begin_s, end_s = (point.kept.get(name) for name in ("steady_begin", "steady_end"))
    if begin_s is not None and end_s is not None:
        run_end_s = float(point.kinds("run_end")["t"].to_numpy().max())
        for left, right in ((0.0, begin_s), (end_s, run_end_s)):
            axes.axvspan(left, right, color=MUTED, alpha=0.12, lw=0)


def _sessions(axes: Axes, point: Measured, colour: str) -> None:
    open_ = on_line(point)
    axes.fill_between(open_.index, open_, step="post", color=colour, alpha=0.18, lw=0)
    axes.step(open_.index, open_, where="post", color=colour, lw=1.6, label="concurrent sessions")
    end_s = float(np.asarray(open_.index, float).max(initial=0.0))
    for kind, name, line in (("shed", "rejected, in all", ":"), ("turn_failed", "failed turns, in all", "--")):
        totals(axes, point.kinds(kind)["t"], end_s, color=BROKEN, ls=line, lw=1.4, label=name)
    axes.axhline(0, color=MUTED, lw=0.6)
    axes.set_ylim(bottom=-0.02 * open_.to_numpy().max(initial=1))
    whole_numbers(axes.yaxis)


def wait_parts(run: Run) -> Picture | LeftOut:
    """Draw one wait as a waterfall: until the server hears the end of the turn, and from there to the first audio."""
    loads = busiest(run)
    if not loads:
        return LeftOut(WAIT, WAIT_TITLE, "nothing was sent")
    point = one(loads[0].points)
    turns = counted(point.all_requests)
    if END_OF_TURN not in turns:
        return LeftOut(WAIT, WAIT_TITLE, "the server reports no ends of turns")
    complete = turns.dropna(subset=[END_OF_TURN, ANSWER]).sort_values(["audio_ttfp_s", "session", "turn"])
    if complete.empty:
        return LeftOut(WAIT, WAIT_TITLE, "no turn that counts has both parts")
    turn = complete.iloc[(len(complete) - 1) // 2]
    end_ms, answer_ms = 1000 * float(turn[END_OF_TURN]), 1000 * float(turn[ANSWER])
    wait_ms = end_ms + answer_ms
    spoken_ms = SPOKEN * max(wait_ms, end_ms)
    colour = looks(run.variants)[loads[0].variant].colour
    figure, (axes,) = sheet(1, WAIT_TITLE, 1.6)
    rows = (
        ("user speaks", -spoken_ms, 0.0, SPEECH, ""),
        ("end of turn", 0.0, end_ms, MUTED, f"{end_ms:,.0f} ms"),
        ("answer", end_ms, end_ms + answer_ms, colour, f"{answer_ms:,.0f} ms"),
    )
    for place, (_, begin, end, fill, text) in enumerate(rows):
        axes.barh(place, end - begin, 0.6, begin, color=fill, zorder=2)
        axes.annotate(text, (max(begin, end), place), (6, 0), textcoords="offset points", va="center", weight="bold")
    axes.axvline(0, color=MUTED, lw=0.8, zorder=1)
    axes.axvline(wait_ms, color=colour, lw=1.0, ls=(0, (1, 2)), zorder=1)
    axes.set_yticks(range(len(rows)), [name for name, *_ in rows])
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    axes.set_xlim(-spoken_ms, 4.5 * spoken_ms)
    axes.set_xlabel("time since the end of the user's speech, ms")
    caption = (
        "End of turn: from the user's last voiced frame to the server's report that it heard the end; answer: from "
        f"there to the first audio, {wait_ms:,.0f} ms after the user. Shown is the turn with the median TTFP of "
        f"{len(complete)} turns that have both parts: session {int(turn['session'])}, turn {int(turn['turn'])}, "
        f"{setting(dict(loads[0].cell)) or 'the one load'}, seed {point.seed}; n = 1."
    )
    return Picture(WAIT, WAIT_TITLE, figure, caption)
