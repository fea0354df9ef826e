"""The dashboard of a call, latency and deadline misses, and beneath it the service of its users.

The paper's silent collapse in one picture: the upper panel stays green while the lower one goes to nothing (Metronome,
Figures 1 and 4b).
"""

from collections.abc import Callable, Mapping, Sequence

from harness.experiments.experiment import Experiment
from reports.claims.quantities import Panels, Setting, of
from reports.figures.drawing import in_per_cent, legend, sheet
from reports.figures.forms import Draw
from reports.figures.frames import curves, deadline_misses, finished, latency, latency_axes, speech
from reports.figures.picture import LeftOut, Picture, at, labelled, made_from
from reports.figures.style import Look, engine_looks
from reports.runs.measured import Measured, Run
from reports.tables.labels import setting

NAME = "dashboard_and_user"
TITLE = "The dashboard's view and the user's view"

Series = Mapping[str, tuple[Sequence[Measured], Look]]
"""Label -> the runs of one policy, and how it is drawn."""
Pick = Callable[[list[Measured]], list[Measured]]


def draw(run: Run) -> Picture | LeftOut:
    title, series = busiest(run, TITLE)
    return both_views(title, {"": series})


def busiest(run: Run, title: str) -> tuple[str, Series]:
    """The runs of each variant with the most sessions, and of other axes with the first values; and the title with
    these."""
    varied = any(axis == "sessions" for cell in run.cells for axis, _ in cell)
    where = at(run, (), sessions=run.values("sessions")[-1] if varied else None)
    looks = labelled(run)
    series = {variant.label: (run.at(variant, **where), looks[variant.label]) for variant in run.variants}
    return f"{title}, {setting(where)}" if where else title, series


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


def views_by_engine(title: str, experiments: Mapping[str, Experiment], engines: Sequence[str], note: str = "") -> Draw:
    """A card's figure: `both_views` of each panel, a line for each of its engines."""
    columns = {
        panel: {e: [of(panel, e)] for e in engines if e in experiment.engines}
        for panel, experiment in experiments.items()
    }
    return views(title, columns, engine_looks(*engines), note)


def views(
    title: str,
    columns: Mapping[str, Mapping[str, Sequence[Setting]]],
    style: Mapping[str, Look],
    note: str = "",
    pick: Pick = list,
) -> Draw:
    """A card's figure: `both_views` of columns of settings, see `runs_of`."""
    return lambda panels: both_views(
        title, {name: runs_of(panels, settings, style, pick) for name, settings in columns.items()}, note
    )


def runs_of(
    panels: Panels, settings: Mapping[str, Sequence[Setting]], style: Mapping[str, Look], pick: Pick = list
) -> Series:
    """The points of these settings by label, or the points that `pick` chooses of them."""
    return {
        label: (pick([point for at in group for point in at.points(panels)]), style[label])
        for label, group in settings.items()
    }


def bold(points: Sequence[Measured]) -> str:
    """Return the line styles of single runs and of their median."""
    seeds = {point.seed for point in finished(points)}
    return "Thin lines are single runs, bold ones their medians. " if len(seeds) > 1 else ""
