"""Claims and figures of Tables 1 and 2, by row and column."""

from collections.abc import Callable, Mapping, Sequence

from reports.claims.claim import Claim, Unit
from reports.claims.quantities import Measure, Quantity, ratio, value
from reports.claims.stated import claim, level
from reports.figures.forms import Draw, Plot, bars, figure
from reports.figures.style import Look
from reports.papers.omniinfer.cluster import at, measured, qpm, total_tps

TWICE = {"qpm": (572, 616), "ttft": (2.196, 2.292), "tpot": (0.052, 0.048)}
"""OmniInfer at 48 requests a die by Table 1 and by Table 2, QPM and s: a band ends half-way, so that no measured point
counts as both."""

Columns = Mapping[str, tuple[str, Quantity, Unit, float]]
"""Columns by name: the paper's name, ours, the unit, and the allowed relative distance. [chosen]"""

Rows = Mapping[str, tuple[str, Sequence[float]]]
"""Rows by name: the panel of the card, and the paper's numbers in the order of the columns."""

COLUMNS: Columns = {
    "ttft": ("TTFT", measured("ttft_mean_s"), "s", 0.2),
    "ttft-p99": ("p99 TTFT", measured("ttft_p99_s"), "s", 0.2),
    "tpot": ("TPOT", measured("tpot_mean_s"), "ms", 0.1),
    "tpot-p99": ("p99 TPOT", measured("tpot_p99_s"), "ms", 0.1),
    "qpm": ("QPM", qpm, "", 0.1),
    "e2e": ("E2E", measured("e2e_mean_s"), "s", 0.1),
    "e2e-p99": ("p99 E2E", measured("e2e_p99_s"), "s", 0.1),
    "ott": ("output tokens/s", measured("output_tps"), "", 0.1),
    "ttt": ("all tokens/s", total_tps, "", 0.1),
}


def rows_stated(
    card: str,
    rows: Rows,
    columns: Columns,
    why: Mapping[str, str],
    fitted: Callable[[str, str], str],
    others: Callable[[str, str], Sequence[float]],
    counted: str = "",
) -> dict[str, Claim]:
    """A claim for each value of a table, by panel and column. It may lie as far from the paper's as its column allows,
    and at most half-way to any of the `others` that it has to be distinguished from. `counted` ends the row's name."""
    return {
        f"{card}-{panel}-{column}": claim(
            f"{row}{counted}: {name}",
            level(
                paper, unit, min([near * paper, *(abs(each - paper) / 2 for each in others(panel, column))])
            ),
            value(quantity, at(panel)),
            why[column],
            fitted=fitted(panel, column),
            follows=f"{card}-{panel}-tpot" if column in ("qpm", "e2e") and not fitted(panel, column) else "",
        )
        for row, (panel, published) in rows.items()
        for (column, (name, quantity, unit, near)), paper in zip(columns.items(), published, strict=True)
    }


def table(title: str, shape: tuple[int, float], rows: Rows, columns: Columns, caption: str) -> Draw:
    """A table as bars: a panel for each column, a bar for each row, the paper's value on it. `shape`: columns of
    panels, and their height in inches."""

    def plot(index: int, name: str, quantity: Quantity, unit: str) -> Plot:
        return bars(
            quantity,
            {"": {row: at(panel) for row, (panel, _) in rows.items()}},
            style={"": Look("#8fb3d9", "o", "-", 1.4)},
            marks={"": {row: published[index] for row, (_, published) in rows.items()}},
            rows=True,
            xlabel=f"{name}, {unit}" if unit else name.replace("tokens/s", "tokens, 1000/s"),
        )

    plots = [plot(index, *column[:3]) for index, column in enumerate(columns.values())]
    return figure(title, *plots, columns=shape[0], height_in=shape[1], sharey=True, caption=caption)


def over(column: str, panel: str, base: str) -> Measure:
    """A column of one panel over that of another."""
    return ratio(COLUMNS[column][1], at(panel), to=at(base))
