"""How many replies are heard without a break, as the load grows (LiveServe, Fig. 11 right)."""

from collections.abc import Sequence

from reports.claims.paper import Published
from reports.figures.lines import over_axis
from reports.figures.picture import LeftOut, Picture
from reports.runs.measured import Run

NAME = "continuity"


def draw(run: Run, paper: Sequence[Published] = ()) -> Picture | LeftOut:
    title = "Continuity: replies heard without a pause above 100 ms"
    axis = next((name for name in ("c", "rate") if len(run.values(name)) > 1), None)
    if not run.spoken:
        return LeftOut(NAME, title, "no finished point has a spoken reply")
    if axis is None:
        return LeftOut(NAME, title, "it needs two loads or more (an axis c or rate)")
    caption = (
        "Higher is better. The listener's player waits for late packets; a reply counts as broken when one "
        "such pause exceeds 100 ms, or when it failed. Interrupted replies are left out."
    )
    return over_axis(
        run,
        name=NAME,
        title=title,
        metric="continuity",
        axis=axis,
        each="p",
        each_values=run.interruptions,
        x_label="concurrent sessions c" if axis == "c" else "sessions a second",
        y_label="continuous replies, %",
        caption=caption,
        counted_as="replies",
        paper=paper,
    )
