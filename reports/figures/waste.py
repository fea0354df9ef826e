"""How much was generated and never heard, as users interrupt more often (LiveServe, Fig. 16 left)."""

from collections.abc import Sequence

from reports.claims.paper import Published
from reports.figures.lines import over_axis
from reports.figures.picture import LeftOut, Picture
from reports.runs.measured import Run

NAME = "wasted_tokens"


def draw(run: Run, paper: Sequence[Published] = ()) -> Picture | LeftOut:
    title = "Wasted tokens: generated and never heard, as users interrupt more often"
    if len(run.interruptions) < 2:
        return LeftOut(NAME, title, "it needs two probabilities p of an interruption or more")
    caption = (
        "Lower is better. Text tokens of the thinker and codec frames of the talker that were generated and "
        "that the user did not hear, over all that were generated. Without interruptions nothing is wasted."
    )
    return over_axis(
        run,
        name=NAME,
        title=title,
        metric="wasted_token_ratio",
        axis="p",
        each="c",
        each_values=run.values("c")[-3:],
        x_label="probability p of an interruption",
        y_label="wasted tokens, %",
        caption=caption,
        counted_as="turns",
        paper=paper,
    )
