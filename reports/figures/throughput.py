"""The latency of a throughput: completed turns a second against P90 of the wait, one curve an engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from reports.claims.published import Published
from reports.figures.drawing import joining
from reports.figures.picture import LeftOut, Picture, at, counts, made_from, whiskers
from reports.figures.style import MUTED, Look, looks, panels
from reports.runs.measured import Measured, Run, over_seeds
from reports.tables.labels import setting, short

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME = "throughput_latency"


def draw(run: Run, paper: Sequence[Published] = ()) -> Picture | LeftOut:
    metric, wait = ("audio_ttfp_p90", "TTFP") if run.spoken else ("ttft_p90", "TTFT")
    title = f"Throughput against P90 {wait} as the load grows"
    axis = next((name for name in ("c", "rate") if len(run.values(name)) > 1), None)
    if axis is None:
        return LeftOut(NAME, title, "it needs two loads or more (an axis c or rate)")
    look = looks(run.variants)
    chosen = [at(run, (axis,), p=p) for p in run.interruptions or [None]]
    figure, axes = panels(len(chosen), title, 3.2)
    used: list[Measured] = []
    for params, panel in zip(chosen, axes, strict=True):
        used_here: list[Measured] = []
        for variant, own in look.items():
            points = {load: run.at(variant, **params, **{axis: load}) for load in run.values(axis)}
            used_here += [point for found in points.values() for point in found]
            curve = _curve(panel, points, metric, own, variant.label)
            compared = variant != run.variants[0]
            # Names of every load on two curves; on more of them they would cover each other.
            named = curve[-1:] if compared and len(look) > 2 else curve
            _name_loads(panel, named, axis, own.colour, left=compared)
        panel.set_title(", ".join(filter(None, [setting(params), counts(used_here, metric, "turns")])))
        used += used_here
        panel.set_xlabel(f"P90 {wait}, ms")
        panel.margins(0.2, 0.14)
    if not any(point.value(metric) is not None for point in used):
        return LeftOut(NAME, title, f"no finished point has a {wait}")
    axes[0].set(ylim=(0, None), ylabel="completed turns, 1/s")
    axes[0].annotate(
        "better", (0.76, 0.24), (0.94, 0.06), "axes fraction", color=MUTED, fontsize=9, ha="center",
        arrowprops={"arrowstyle": "->", "color": MUTED},
    )  # fmt: skip
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower left", ncols=4)
    caption = (
        "Up and to the left is better: more turns completed, with a shorter wait. Each marker is one load, "
        f"named by {axis}. "
    )
    if axis == "c":
        caption += "The loop is closed: users who are answered or who listen longer also ask later. "
    caption += made_from(used, bars=True)
    return Picture(NAME, title, figure, caption)


def _curve(
    panel: Axes, points: Mapping[Any, list[Measured]], metric: str, look: Look, label: str
) -> list[tuple[float, float, Any]]:
    """Draw medians with bars over the seeds; returns the curve as (wait in ms, turns a second, load)."""
    curve = []
    for load, found in points.items():
        x, y = over_seeds(found, metric), over_seeds(found, "completed_rps")
        if x.median is None or y.median is None:
            continue
        curve.append((1000 * x.median, y.median, load))
        panel.errorbar(
            1000 * x.median,
            y.median,
            xerr=whiskers(x, 1000),
            yerr=whiskers(y),
            color=look.colour,
            lw=0.9,
            alpha=0.7,
            zorder=3,
        )
    panel.plot(
        [x for x, *_ in curve],
        [y for _, y, _ in curve],
        **look.joined | joining(len(curve)),
        label=label,
        zorder=4,
    )
    return curve


def _name_loads(panel: Axes, curve: list, axis: str, colour: str, left: bool) -> None:
    """Names on the outer side of each curve, so that two curves that meet keep theirs apart."""
    for x, y, load in curve:
        panel.annotate(
            f"{axis}={short(load)}",
            (x, y),
            (-8, 6) if left else (8, -6),
            textcoords="offset points",
            ha="right" if left else "left",
            va="bottom" if left else "top",
            fontsize=8.5,
            color=colour,
        )
