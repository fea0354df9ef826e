"""Claims and figures of Tables 1 and 2, by row and column."""

from collections.abc import Callable, Mapping, Sequence
from math import exp, log, sqrt
from statistics import NormalDist
from typing import Any

from reports.claims.bands import Band, of_mean, of_model, of_percentile
from reports.claims.claim import Claim, Unit
from reports.claims.quantities import Measure, Quantity, ratio, value
from reports.claims.stated import Number, claim, level, times
from reports.figures.forms import Draw, Plot, bars, figure
from reports.figures.style import Look
from reports.papers.omniinfer.cluster import LENGTHS, at, measured, qpm, total_tps

WHOLE = (2.292, 4.198, 0.048, 0.050, 616, 59.206, 148.364, 60_575, 225_546)
"""OmniInfer by Table 2: 6P8-1D32 with 48 requests a die, which Table 1 has, too. s, QPM and tokens/s."""

Columns = Mapping[str, tuple[str, Quantity, Unit, float]]
"""Columns by name: the paper's name, ours, the unit, and the last printed digit."""

Rows = Mapping[str, tuple[str, Sequence[float]]]
"""Rows by name: the panel of the card, and the paper's numbers in the order of the columns."""

COLUMNS: Columns = {
    "ttft": ("TTFT", measured("ttft_mean_s"), "s", 0.001),
    "ttft-p99": ("p99 TTFT", measured("ttft_p99_s"), "s", 0.001),
    "tpot": ("TPOT", measured("tpot_mean_s"), "ms", 0.001),
    "tpot-p99": ("p99 TPOT", measured("tpot_p99_s"), "ms", 0.001),
    "qpm": ("QPM", qpm, "", 1),
    "e2e": ("E2E", measured("e2e_mean_s"), "s", 0.001),
    "e2e-p99": ("p99 E2E", measured("e2e_p99_s"), "s", 0.001),
    "ott": ("output tokens/s", measured("output_tps"), "", 1),
    "ttt": ("all tokens/s", total_tps, "", 1),
}

WINDOW = ("qpm", "e2e", "ott", "ttt")
"""Columns that are counted in a window of time, or follow from one that is."""
OFF_THE_LAW = 1 - 404 * 10 / 2 / 60 * 88.169 / 3072
"""Share by which Table 2's row without all parts misses Little's law, the most of all rows: QPM of two nodes of ten,
times E2E, over what is in flight. The paper's windows are no more precise."""


def precision(column: str, in_flight: int, row: Sequence[float] = WHOLE) -> Band:
    """Band of a cell. Of what is counted in a window: how far the paper's rows obey Little's law; of TTFT and TPOT: how
    much requests differ, by P99 over mean of a `row` of Table 2. The paper states no duration; [assumed] as many
    requests as ours."""
    name, n, printed = column.removesuffix("-p99"), LENGTHS * in_flight, COLUMNS[column][3]
    if column in WINDOW:
        return of_model(OFF_THE_LAW, f"the paper's rows miss Little's law by up to {OFF_THE_LAW:.1%}")
    values = dict(zip(COLUMNS, row, strict=True))
    # P99 over mean of a log-normal distribution is exp(z sigma - sigma^2 / 2).
    z = NormalDist().inv_cdf(0.99)
    sigma = z - sqrt(z * z - 2 * log(values[f"{name}-p99"] / values[name]))
    if column != name:
        return of_percentile(0.99, n, round(sigma, 3), printed)
    return of_mean(n, sqrt(exp(sigma * sigma) - 1), printed)


def ratio_stated(numbers: tuple[float, float], bands: tuple[Band, Band]) -> Number:
    """The ratio of two printed cells, as precise as the less precise one."""
    shares = [band.over(number) for band, number in zip(bands, numbers, strict=True)]
    return times(numbers[0] / numbers[1], within=max(shares, key=lambda band: band.relative))


def rows_stated(
    card: str,
    rows: Rows,
    columns: Columns,
    band: Callable[[str, str], Band],
    why: Mapping[str, str],
    more: Callable[[str, str], Mapping[str, Any]],
    counted: str = "",
) -> dict[str, Claim]:
    """A claim for each value of a table. `band`, `more`: its band and further fields of `Claim`, by panel and column;
    `counted` ends the row's name."""
    return {
        f"{card}-{panel}-{column}": claim(
            f"{row}{counted}: {name}",
            level(paper, unit, band(panel, column)),
            value(quantity, at(panel)),
            why[column],
            **more(panel, column),
        )
        for row, (panel, published) in rows.items()
        for (column, (name, quantity, unit, _)), paper in zip(columns.items(), published, strict=True)
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
