"""Table 1: prefill instances, decode dies and batches."""

from collections.abc import Sequence
from typing import NamedTuple

from reports.claims.stated import claim, level, times
from reports.papers.omniinfer.cluster import ALL, FITTED_PREFILL, ONE_QUEUE, cluster
from reports.papers.omniinfer.tables import COLUMNS, TWICE, Columns, Rows, over, rows_stated, table

TITLE = "Table 1: OmniInfer's prefill instances and decode dies (xPyD) and requests a die"

FITTED_SLOPE = (
    "the efficiency of products was fitted to the growth of this time with the requests of a die, and "
    "to Table 2 without all parts"
)


class Row(NamedTuple):
    """A row of the paper. `batch`: requests in flight a decode die; s."""

    shape: str
    batch: int
    qpm: float
    ttft_s: float
    tpot_s: float

    @property
    def panel(self) -> str:
        return f"{self.shape}-{self.batch}"

    @property
    def in_flight(self) -> int:
        return self.batch * (128 if self.shape.endswith("d64") else 64)

    @property
    def name(self) -> str:
        return f"{self.shape.upper().replace('_', '-')}, {self.batch}"


PAPER = (
    Row("4p8_1d32", 24, 472, 2.598, 0.038),
    Row("5p8_1d32", 30, 500, 1.548, 0.041),
    Row("5p8_1d32", 32, 520, 1.983, 0.042),
    Row("6p8_1d32", 40, 524, 1.282, 0.048),
    Row("6p8_1d32", 44, 552, 1.630, 0.050),
    Row("6p8_1d32", 46, 549, 1.537, 0.051),
    Row("6p8_1d32", 48, 572, 2.196, 0.052),
    Row("8p8_1d64", 24, 481, 2.822, 0.037),
)
EXPERIMENTS = {row.panel: cluster(row.shape, row.in_flight, **ALL) for row in PAPER}
QUICK = {"requests": "10752"}

_COLUMNS: Columns = {column: COLUMNS[column] for column in ("qpm", "ttft", "tpot")}
_ROWS: Rows = {row.name: (row.panel, row[2:]) for row in PAPER}
_WHY = {"qpm": "follows from the time per token", "ttft": ONE_QUEUE, "tpot": "{ms:.0f} ms"}


def _fitted(panel: str, column: str) -> str:
    if column == "ttft":
        return FITTED_PREFILL
    return FITTED_SLOPE if column == "tpot" and "d32" in panel else ""


def _others(panel: str, column: str) -> Sequence[float]:
    """The value of the row in Table 2, too."""
    return TWICE[column][1:] if panel == "6p8_1d32-48" else ()


CLAIMS = {
    **rows_stated("table1", _ROWS, _COLUMNS, _WHY, _fitted, _others, " requests a die"),
    "table1-batch-qpm": claim(
        "larger batches serve more: 48 over 40 requests a die (QPM)",
        times(572 / 524, within=0.045),
        over("qpm", "6p8_1d32-48", "6p8_1d32-40"),
        "× {ours:.2f}",
        fitted=FITTED_SLOPE,
    ),
    "table1-batch-ttft": claim(
        "and wait longer for their first token",
        times(2.196 / 1.282, within=0.35),
        over("ttft", "6p8_1d32-48", "6p8_1d32-40"),
        "× {ours:.2f}",
        fitted=FITTED_PREFILL,
    ),
    "table1-batch-tpot": claim(
        "and for the others",
        times(52 / 48, within=0.04),
        over("tpot", "6p8_1d32-48", "6p8_1d32-40"),
        "× {ours:.2f}",
        fitted=FITTED_SLOPE,
    ),
    "table1-doubled": claim(
        "twice the instances and dies serve about as much of two nodes each: 8P8-1D64 over 4P8-1D32 (QPM)",
        level(481 / 472, "×", within=0.08),
        over("qpm", "8p8_1d64-24", "4p8_1d32-24"),
        remark="the paper reads it as little gain; QPM of two nodes of 16 and of 8 is of nearly twice the cluster",
    ),
    "table1-dies": claim(
        "and twice the dies shorten a token a little (TPOT)",
        times(37 / 38, within=0.013),
        over("tpot", "8p8_1d64-24", "4p8_1d32-24"),
        "× {ours:.2f}: each die reads the weights of half as many experts, and an all-to-all takes 7 us longer",
    ),
}

draw = table(
    TITLE,
    (3, 3.4),
    _ROWS,
    _COLUMNS,
    "Modelled: DeepSeek-R1 INT8 on dies of Ascend 910C; a row's number is its requests in flight a decode die. "
    "Outlined: the paper. QPM is of two nodes.",
)
