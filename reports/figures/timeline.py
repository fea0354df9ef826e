"""The experience of one user: an interrupted turn and the one after it, under every engine."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.request_tables.playback import CONTINUITY_GAP_S
from harness.request_tables.request_table import BARGED_IN, COMPLETED
from reports.figures.drawing import legend, sheet
from reports.figures.picture import LeftOut, Picture, at, line_handle, patch_handle
from reports.figures.shared_turns import SharedTurn, TurnLog, shared_turns
from reports.figures.style import BROKEN, INK, MUTED, SPEECH, Look, looks
from reports.runs.measured import Run, Variant
from reports.tables.labels import setting

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME = "timeline"
TURNS = 2
MERGE_S = 0.25
"""Steps of a stage that are no further apart are drawn as one stretch of generation."""
_LANES = ("playback", "talker", "thinker", "user")  # from below
_LIVE_LANES = ("playback", "received", "user")
"""Lanes of a live run; over sockets the times of generation are unknown."""
_HEIGHT = 0.62


def draw(run: Run) -> Picture | LeftOut:
    title = "One session over time"
    if not run.spoken:
        return LeftOut(NAME, title, "no finished point has a spoken reply")
    where = at(run, (), c=run.top, p=next(reversed(run.interruptions), None))
    cut = shared_turns(run, where, BARGED_IN)
    turns = cut or shared_turns(run, where, COMPLETED)
    if not turns:
        return LeftOut(NAME, title, f"no turn at {setting(where)} ended the same way in every variant")
    chosen = _typical(turns, run.variants[0])
    if cut:
        title += ": a user interrupts"
    look = looks(run.variants)
    figure, axes = sheet(len(look), title, 1.75, 1, sharex=True, sharey=True)
    for (variant, style), panel in zip(look.items(), axes, strict=True):
        _lanes(panel, chosen, variant, style, _LIVE_LANES if run.live else _LANES)
    axes[-1].set_xlabel("time since the user began to speak, s")
    colour = MUTED if len(look) > 1 else look[run.variants[0]].colour
    legend(figure, *_legend(bool(cut), run.live, colour))
    hatched = "The hatched part of thinker and talker was generated and never heard. " if cut else ""
    between = "Between two bars of a stage the engine served other requests or deferred this one."
    if run.live:
        hatched, between = ("", "Received audio is marked at the arrival of its packets, for any length of playback.")
    fate = "interrupted" if cut else "heard to its end"
    after = " and the turn after it" if chosen.followed else ""
    caption = (
        "Each group of lanes is one engine with the same user. The wait from the end of the user's "
        f"speech to the first audio stands in the user's lane, with its length. {hatched}{between} A "
        f"pause above {1000 * CONTINUITY_GAP_S:.0f} ms is a break for the listener. Shown is "
        f"{chosen.name}, {fate} in every variant{after}; of all such turns it has the median playback "
        f"time under the baseline. {setting(where)}, seed {chosen.seed}; n = 1."
    )
    return Picture(NAME, title, figure, caption)


def _typical(turns: Sequence[SharedTurn], variant: Variant) -> SharedTurn:
    """Return the turn of median length among turns with a successor, so that no example is hand-picked."""
    candidates = [turn for turn in turns if turn.followed] or turns
    by_length = sorted(candidates, key=lambda turn: (turn.rows[variant]["heard_s"], turn.seed, turn.session))
    return by_length[len(by_length) // 2]


def _lanes(panel: Axes, turn: SharedTurn, variant: Variant, look: Look, lanes: Sequence[str]) -> None:
    for log in turn.logs(variant, "turn_start_s", TURNS):
        _one_turn(panel, log, look, lanes)
    panel.set_title(variant.label, color=look.colour, weight="bold")
    panel.set_yticks(range(len(lanes)), lanes)
    panel.set(ylim=(-0.6, len(lanes) - 0.4), xlim=(-0.2, None))
    panel.grid(axis="y", visible=False)


def _one_turn(panel: Axes, log: TurnLog, look: Look, lanes: Sequence[str]) -> None:
    begin_s, end_s, cut_s = log.first("turn_start"), log.first("turn_end"), log.first("barge_in")
    heard = log.playback()
    user, play = lanes.index("user"), lanes.index("playback")
    if begin_s is not None and end_s is not None:
        _bar(panel, user, begin_s, end_s, color=SPEECH)
    if heard and end_s is not None:
        first_s = heard[0][0]
        _bar(panel, user, end_s, first_s, fc="white", ec=INK, lw=0.9)
        panel.text(first_s, user, f" {1000 * (first_s - end_s):.0f} ms", va="center", fontsize=8.5, color=INK)
    for begin, end in heard:
        _bar(panel, play, begin, end, color=look.colour)
    for (_, begin), (end, _) in pairwise(heard):
        broken = end - begin > CONTINUITY_GAP_S
        _bar(panel, play, begin, end, color=BROKEN if broken else "#f2c6d2")
    for lane, name in enumerate(lanes):
        if name in ("thinker", "talker"):
            _generation(panel, lane, name, log, look)
        elif name == "received":
            for begin, end in _stretches(log.times("audio")):
                _bar(panel, lane, begin, end, color=look.colour, alpha=0.55)
    if cut_s is not None:
        panel.axvline(cut_s, color=BROKEN, lw=1.4, ls=(0, (4, 2)), zorder=5)


def _generation(panel: Axes, lane: int, stage: str, log: TurnLog, look: Look) -> None:
    """Bars where the stage produced tokens of this turn, hatched from the first that was never heard."""
    times = log.times("token", stage)
    heard = log.values("heard", stage)
    produced = log.values("token", stage).cumsum()
    used = int(np.searchsorted(produced, heard[0] if heard.size else np.inf, side="right"))
    for begin, end in _stretches(times[:used]):
        _bar(panel, lane, begin, end, color=look.colour, alpha=0.55)
    for begin, end in _stretches(times[max(0, used - 1) :] if used < times.size else times[:0]):
        _bar(panel, lane, begin, end, fc="white", ec=look.colour, hatch="/////", lw=0.8)


def _stretches(times: np.ndarray) -> list[tuple[float, float]]:
    """Merge times that are at most `MERGE_S` apart."""
    if not times.size:
        return []
    breaks = np.flatnonzero(np.diff(times) > MERGE_S)
    begins, ends = np.r_[0, breaks + 1], np.r_[breaks, times.size - 1]
    return list(zip(times[begins].tolist(), times[ends].tolist(), strict=True))


def _bar(panel: Axes, lane: int, begin: float, end: float, **style: Any) -> None:
    panel.barh(lane, max(end - begin, 0.02), left=begin, height=_HEIGHT, **style)


def _legend(interrupted: bool, live: bool, colour: str) -> list[Any]:
    handles: list[Any] = [
        patch_handle(color=SPEECH, label="user speaks"),
        patch_handle(fc="white", ec=INK, label="wait for first audio"),
        patch_handle(color=colour, alpha=0.55, label="received" if live else "generation"),
        patch_handle(color=colour, label="playback"),
        patch_handle(color=BROKEN, label="pause above 100 ms"),
    ]
    if interrupted and not live:
        handles.insert(3, patch_handle(fc="white", ec=MUTED, hatch="/////", label="generated, never heard"))
    if interrupted:
        handles.append(line_handle(color=BROKEN, ls=(0, (4, 2)), lw=1.4, label="interruption"))
    return handles
