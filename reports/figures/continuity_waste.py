"""Continuity over the load and wasted tokens over interruptions: a line per variant, a panel for each value of another
parameter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from reports.claims.published import Published, along
from reports.figures.drawing import line
from reports.figures.picture import LeftOut, Picture, at, counts, made_from, paper_handle, paper_marker
from reports.figures.style import looks, panels
from reports.runs.measured import Measured, Run, over_seeds
from reports.tables.labels import setting, short

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def continuity(run: Run, paper: Sequence[Published] = ()) -> Picture | LeftOut:
    """How many replies are heard without a break, as the load grows (LiveServe, Fig. 11 right)."""
    title = "Continuity: replies heard without a pause above 100 ms"
    axis = next((name for name in ("c", "rate") if len(run.values(name)) > 1), None)
    if not run.spoken:
        return LeftOut("continuity", title, "no finished point has a spoken reply")
    if axis is None:
        return LeftOut("continuity", title, "it needs two loads or more (an axis c or rate)")
    caption = (
        "Higher is better. The listener's player waits for late packets; a reply counts as broken when one "
        "such pause exceeds 100 ms, or when it failed. Interrupted replies are left out."
    )
    return _over_axis(
        run,
        name="continuity",
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


def wasted_tokens(run: Run, paper: Sequence[Published] = ()) -> Picture | LeftOut:
    """How much was generated and never heard, as users interrupt more often (LiveServe, Fig. 16 left)."""
    title = "Wasted tokens: generated and never heard, as users interrupt more often"
    if len(run.interruptions) < 2:
        return LeftOut("wasted_tokens", title, "it needs two probabilities p of an interruption or more")
    caption = (
        "Lower is better. Text tokens of the thinker and codec frames of the talker that were generated and "
        "that the user did not hear, over all that were generated. Without interruptions nothing is wasted."
    )
    return _over_axis(
        run,
        name="wasted_tokens",
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


def _over_axis(
    run: Run,
    *,
    name: str,
    title: str,
    metric: str,
    axis: str,
    each: str,
    each_values: Sequence[Any],
    x_label: str,
    y_label: str,
    caption: str,
    counted_as: str,
    paper: Sequence[Published],
) -> Picture | LeftOut:
    """Draw `metric` (a share) in per cent over `axis`, one panel for each value of `each`."""
    look = looks(run.variants)
    values = run.values(axis)
    apart = 0.012 * (values[-1] - values[0])
    chosen = [at(run, (axis,), **{each: value}) for value in each_values or [None]]
    figure, axes = panels(len(chosen), title, 3.0)
    used: list[Measured] = []
    from_paper: set[float] = set()
    for params, panel in zip(chosen, axes, strict=True):
        here: list[Measured] = []
        published = along(paper, metric, axis, {name: params[name] for name in (each,) if name in params})
        for index, (variant, own) in enumerate(look.items()):
            # Apart by a little, so that variants that are equal can both be seen.
            shift = (index - (len(look) - 1) / 2) * apart
            for x, entry in published:
                if variant.engine in entry.values and run.leads(variant):
                    paper_marker(panel, x + shift, 100 * entry.values[variant.engine], own)
                    from_paper.add(x)
            points = {value: run.at(variant, **params, **{axis: value}) for value in values}
            here += [point for found in points.values() for point in found]
            spreads = {value + shift: over_seeds(found, metric) for value, found in points.items()}
            line(panel, spreads, own, variant.label, 100)
        panel.set_title(", ".join(filter(None, [setting(params), counts(here, metric, counted_as)])))
        panel.set_xlabel(x_label)
        used += here
    if not any(point.value(metric) is not None for point in used):
        return LeftOut(name, title, "no finished point has this metric")
    _scales(axes[0], sorted(from_paper.union(values)))
    axes[0].set_ylabel(y_label)
    handles, labels = axes[0].get_legend_handles_labels()
    if from_paper:
        handles, labels = [*handles, paper_handle()], [*labels, "paper (other deployment)"]
    figure.legend(handles, labels, loc="outside lower left", ncols=4)
    return Picture(name, title, figure, f"{caption} {made_from(used, bars=True)}")


def _scales(axes: Axes, ticks: Sequence[Any]) -> None:
    """The ticks by name, and per cent up to 100 only where it comes near that."""
    axes.set_xticks(ticks, [short(value) for value in ticks])
    low, high = axes.get_ylim()
    axes.set_ylim(max(low, -0.04 * high) if low < 10 else low, min(high, 104) if high > 60 else high)
