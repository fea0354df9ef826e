"""Throughput, continuity and wasted tokens over the load or interruptions: a line per variant, a panel for each value
of another parameter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from reports.claims.published import Published, along
from reports.figures.forms import Plot, figure, lines
from reports.figures.picture import LeftOut, Picture, at, counts, labelled, over, points_of
from reports.runs.measured import Run
from reports.tables.labels import setting, short


def continuity(run: Run, paper: Sequence[Published] = ()) -> Picture | LeftOut:
    """Draw the share of replies heard without a break over the load (LiveServe, Fig. 11 right)."""
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
    names = {"ylabel": "continuous replies", "xlabel": "concurrent sessions c" if axis == "c" else "sessions a second"}
    shown = [at(run, (axis,), p=p) for p in run.interruptions or [None]]
    return _over_axis(run, "continuity", title, axis, shown, names, caption, "replies", paper)


def wasted_tokens(run: Run, paper: Sequence[Published] = ()) -> Picture | LeftOut:
    """Draw the share of generated tokens that were never heard, over the interruptions (LiveServe, Fig. 16 left)."""
    title = "Wasted tokens: generated and never heard, as users interrupt more often"
    if len(run.interruptions) < 2:
        return LeftOut("wasted_tokens", title, "it needs two probabilities p of an interruption or more")
    caption = (
        "Lower is better. Text tokens of the thinker and codec frames of the talker that were generated and "
        "that the user did not hear, over all that were generated. Without interruptions nothing is wasted."
    )
    names = {"ylabel": "wasted tokens", "xlabel": "probability p of an interruption"}
    shown = [at(run, ("p",), c=c) for c in run.values("c")[-3:] or [None]]
    return _over_axis(run, "wasted_tokens", title, "p", shown, names, caption, "turns", paper)


def _over_axis(
    run: Run,
    name: str,
    title: str,
    axis: str,
    chosen: Sequence[Mapping[str, Any]],
    names: Mapping[str, str],
    caption: str,
    counted_as: str,
    paper: Sequence[Published],
) -> Picture | LeftOut:
    """Draw a share over `axis`, a panel for each of the `chosen` parameters."""
    metric = {"continuity": "continuity", "wasted_tokens": "wasted_token_ratio"}[name]
    shown = [point for params in chosen for point in points_of(over(run, axis, **params))]
    high = max([point.value(metric) or 0 for point in shown], default=0)
    top = 1.0 if high > 0.55 else max(0.1, 1.15 * high)

    def plot(params: Mapping[str, Any]) -> Plot:
        series = over(run, axis, **params)
        published = along(paper, metric, axis, {each: params[each] for each in ("c", "p") if each in params})
        marks = {
            variant.label: {x: entry.values[variant.engine] for x, entry in published if variant.engine in entry.values}
            for variant in run.variants
            if run.leads(variant)
        }
        title = ", ".join(filter(None, [setting(params), counts(points_of(series), metric, counted_as)]))
        ticks = sorted({*run.values(axis), *(x for x, _ in published)})
        more: dict[str, Any] = {"xticks": ticks, "xticklabels": [short(x) for x in ticks], "percent": (0, top)}
        return lines(metric, series, style=labelled(run), marks=marks, title=title, **names, **more)

    plots = [plot(params) for params in chosen]
    return _drawn(name, title, plots, caption, height_in=3.0, paper="paper (other deployment)")


def throughput(run: Run) -> Picture | LeftOut:
    """Draw completed turns a second against P90 of the wait: one curve an engine."""
    metric, wait = ("audio_ttfp_p90", "TTFP") if run.spoken else ("ttft_p90", "TTFT")
    title = f"Throughput against P90 {wait} as the load grows"
    axis = next((name for name in ("c", "rate") if len(run.values(name)) > 1), None)
    if axis is None:
        return LeftOut("throughput_latency", title, "it needs two loads or more (an axis c or rate)")
    chosen = [at(run, (axis,), p=p) for p in run.interruptions or [None]]

    def plot(params: dict[str, Any]) -> Plot:
        series = over(run, axis, **params)
        return lines(
            "completed_rps",
            series,
            against=metric,
            style=labelled(run),
            beside=lambda load: f"{axis}={short(load)}",
            title=", ".join(filter(None, [setting(params), counts(points_of(series), metric, "turns")])),
            xlim=(None, None),
            margins=(0.2, 0.14),
            ylabel="completed turns, 1/s",
        )

    caption = (
        "Up and to the left is better: more turns completed, with a shorter wait. Each marker is one load, "
        f"named by {axis}."
    )
    if axis == "c":
        caption += " The loop is closed: users who are answered or who listen longer also ask later."
    plots = [plot(params) for params in chosen]
    return _drawn("throughput_latency", title, plots, caption, height_in=3.2)


def _drawn(name: str, title: str, plots: Sequence[Plot], caption: str, **more: Any) -> Picture | LeftOut:
    draw = figure(title, *plots, name=name, columns=3, caption=caption, sharex=True, sharey=True, **more)
    return draw({})
