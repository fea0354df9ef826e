"""The wait for one answer as a waterfall: until the server hears the end of the turn, and from there to the first
audio."""

from __future__ import annotations

from harness.request_tables.live_window import counted
from harness.request_tables.wait_parts import ANSWER, END_OF_TURN
from reports.figures.drawing import sheet
from reports.figures.picture import LeftOut, Picture
from reports.figures.style import MUTED, SPEECH, looks
from reports.live.live_record import busiest, one
from reports.runs.measured import Run
from reports.tables.labels import setting

NAME = "wait_parts"
TITLE = "The wait of one turn, in its parts"
SPOKEN = 0.25
"""Length of the user's speech that is drawn, in waits."""


def draw(run: Run) -> Picture | LeftOut:
    loads = busiest(run)
    if not loads:
        return LeftOut(NAME, TITLE, "nothing was sent")
    point = one(loads[0].points)
    turns = counted(point.all_requests)
    if END_OF_TURN not in turns:
        return LeftOut(NAME, TITLE, "the server reports no ends of turns")
    known = turns.dropna(subset=[END_OF_TURN, ANSWER]).sort_values(["audio_ttfp_s", "session", "turn"])
    if known.empty:
        return LeftOut(NAME, TITLE, "no turn that counts has both parts")
    turn = known.iloc[(len(known) - 1) // 2]
    end_ms, answer_ms = 1000 * float(turn[END_OF_TURN]), 1000 * float(turn[ANSWER])
    wait_ms = end_ms + answer_ms
    spoken_ms = SPOKEN * max(wait_ms, end_ms)
    colour = looks(run.variants)[loads[0].variant].colour
    figure, (axes,) = sheet(1, TITLE, 1.6)
    rows = (
        ("user speaks", -spoken_ms, 0.0, SPEECH, ""),
        ("end of turn", 0.0, end_ms, MUTED, f"{end_ms:,.0f} ms"),
        ("answer", end_ms, end_ms + answer_ms, colour, f"{answer_ms:,.0f} ms"),
    )
    for place, (_, begin, end, fill, text) in enumerate(rows):
        axes.barh(place, end - begin, 0.6, begin, color=fill, zorder=2)
        axes.annotate(
            text, (max(begin, end), place), (6, 0), textcoords="offset points", va="center", weight="bold"
        )
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
        f"{len(known)} turns that have both parts: session {int(turn['session'])}, turn {int(turn['turn'])}, "
        f"{setting(dict(loads[0].cell)) or 'the one load'}, seed {point.seed}; n = 1."
    )
    return Picture(NAME, TITLE, figure, caption)
