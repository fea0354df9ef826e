"""The dashboard of a call, latency and deadline misses, and beneath it the service of its users.

The paper's silent collapse in one picture: the upper panel stays green while the lower one goes to nothing (Metronome,
Figures 1 and 4b).
"""

from collections.abc import Mapping, Sequence

from harness.experiments.experiment import Experiment
from reports.claims.quantities import Panels, of
from reports.figures.drawing import in_per_cent, legend, sheet
from reports.figures.forms import Draw
from reports.figures.frames import curves, deadline_misses, finished, latency, latency_axes, speech
from reports.figures.picture import LeftOut, Picture, at, made_from
from reports.figures.style import Look, engine_looks, looks
from reports.runs.measured import Measured, Run
from reports.tables.labels import setting

NAME = "dashboard_and_user"
TITLE = "The dashboard's view and the user's view"

Series = Mapping[str, tuple[Sequence[Measured], Look]]
"""Label -> the runs of one policy, and how it is drawn."""


def draw(run: Run) -> Picture | LeftOut:
    where = busiest(run)
    series = {
        variant.label: (run.at(variant, **where), look) for variant, look in looks(run.variants).items()
    }
    title = f"{TITLE}, {setting(where)}" if where else TITLE
    return both_views(title, {"": series})


def busiest(run: Run) -> dict[str, object]:
    """The cell with the most sessions, and of other axes the first values."""
    varied = any(axis == "sessions" for cell in run.cells for axis, _ in cell)
    return at(run, (), sessions=run.values("sessions")[-1] if varied else None)


def both_views(title: str, columns: Mapping[str, Series], note: str = "") -> Picture | LeftOut:
    """A column of two panels for each named group of series: latency with its misses, and frames with speech.

    `note` joins the caption.
    """
    figure, axes = sheet(2 * len(columns), title, 2.75, len(columns), sharex=True)
    above, below = axes[: len(columns)], axes[len(columns) :]
    used: list[Measured] = []
    for (name, series), upper, lower in zip(columns.items(), above, below, strict=True):
        here = [point for points, _ in series.values() for point in points]
        used += here
        if not finished(here):
            continue
        for label, (points, look) in series.items():
            curves(upper, points, latency, look, label, 1000)
            curves(lower, points, speech, look, label)
        latency_axes(upper, finished(here)[0])
        deadline_misses(upper, here)
        upper.set_title(name)
        in_per_cent(lower, (-0.02, 1.02))
        lower.set(ylabel="due frames with speech", xlabel="elapsed time, s")
        lower.set(xlim=(0, finished(here)[0].params["duration_s"]))
    if not finished(used):
        return LeftOut(NAME, title, "no point of it is finished")
    legend(figure)
    caption = (
        "Above, a dashboard's metrics: the median frame latency in buckets of 10 s (log scale; tick "
        "dispatched to tick returned, without sessions' first frames), and in green the frames that "
        "missed their deadline. Below, the users' view: the share of due frames with speech. "
        f"{bold(used)}{made_from(used)} {note}".rstrip()
    )
    return Picture(NAME, title, figure, caption)


def views_by_engine(
    title: str, experiments: Mapping[str, Experiment], engines: Sequence[str], note: str = ""
) -> Draw:
    """A card's figure: `both_views` of each panel, a line for each of its engines."""

    def draw(panels: Panels) -> Picture | LeftOut:
        looks = engine_looks(*engines)
        columns = {
            panel: {e: (of(panel, e).points(panels), looks[e]) for e in engines if e in experiment.engines}
            for panel, experiment in experiments.items()
        }
        return both_views(title, columns, note)

    return draw


def bold(points: Sequence[Measured]) -> str:
    """Return the line styles of single runs and of their median."""
    seeds = {point.seed for point in finished(points)}
    return "Thin lines are single runs, bold ones their medians. " if len(seeds) > 1 else ""
