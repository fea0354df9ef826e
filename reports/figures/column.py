"""A picture at the width of a paper's column."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.gridspec import GridSpecBase

LEAST_PANEL_IN = 2.2
"""Width of a panel below which its ticks and title do not fit. [chosen]"""
_LETTER_IN = 0.065
"""Mean width of a letter of a legend, in. [chosen]"""
_LEGEND_ROW_IN = 0.17
_LEAST_HEIGHT = 0.7
"""Share of its height that a panel keeps at least. [chosen]"""
_SMALL: Any = {
    "figure.titlesize": 9,
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7.5,
    "lines.linewidth": 1.4,
    "lines.markersize": 5,
}


def small_text(width_in: float | None) -> AbstractContextManager[None]:
    """Return the sizes of text for a picture of a width in inches; the report's for None."""
    from matplotlib import rc_context

    return nullcontext() if width_in is None else rc_context(_SMALL)


def fit(figure: Figure, width_in: float, least_height: float = _LEAST_HEIGHT) -> None:
    """Resize a figure; panels that would become too narrow go below each other, and the legend gets fewer columns.
    `least_height`: share of its height that a panel keeps at least."""
    before, height = figure.get_size_inches()
    grids = {axes.get_gridspec() for axes in figure.axes}
    rows, columns = 1, 1
    ratio = width_in / before
    if len(grids) == 1 and (grid := grids.pop()) is not None:
        rows, columns = grid.nrows, grid.ncols
        fitting = max(1, min(columns, int(width_in / LEAST_PANEL_IN)))
        if fitting < columns and _even(grid):
            height *= _stack(figure.axes, figure, fitting) / rows
            ratio *= columns / fitting
    height *= max(least_height, min(1.0, ratio))
    for legend in figure.legends[:]:
        handles, labels = ([*filter(None, legend.legend_handles)], [text.get_text() for text in legend.get_texts()])
        legend.remove()
        ncols = max(1, int(width_in / (0.5 + _LETTER_IN * max(map(len, labels)))))
        height += _LEGEND_ROW_IN * (-(-len(labels) // ncols) - 1)
        figure.legend(handles, labels, loc="outside lower left", ncols=ncols)
    figure.set_size_inches(width_in, height)


def _even(grid: GridSpecBase) -> bool:
    """Return whether all columns are equally wide."""
    ratios: Any = grid.get_width_ratios()
    return len({*(ratios or ())}) < 2


def _stack(panels: list[Axes], figure: Figure, columns: int) -> int:
    """Place panels anew in rows of `columns`, each with the labels that it shared before, and return the rows."""
    specs = [axes.get_subplotspec() for axes in panels]
    places = sorted({spec.num1 for spec in specs if spec is not None})
    rows = -(-len(places) // columns)
    grid = figure.add_gridspec(rows, columns)
    label = ""
    for axes, spec in zip(panels, specs, strict=True):
        if spec is None:
            continue
        label = axes.get_ylabel() or (label if spec.colspan.start else "")
        place = places.index(spec.num1)
        axes.set_subplotspec(grid[divmod(place, columns)])
        first = place % columns == 0
        axes.set_ylabel(label if first else "")
        axes.tick_params(labelleft=first, labelbottom=True)
    return rows
