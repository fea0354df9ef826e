"""Table 1: prefill instances, decode dies and batches.

A reader decides with it how many prefill instances the decode dies need, and how many requests a die should have.
"""

from math import sqrt
from typing import Any, NamedTuple

from reports.claims.bands import of_model
from reports.claims.stated import Number, claim, contradiction, level
from reports.papers.omniinfer.cluster import ALL, FIRST_TOKENS, FITTED_PREFILL, cluster
from reports.papers.omniinfer.tables import (
    COLUMNS,
    OFF_THE_LAW,
    Columns,
    Rows,
    over,
    precision,
    ratio_stated,
    rows_stated,
    table,
)

TITLE = "Table 1: OmniInfer's prefill instances and decode dies (xPyD) and requests a die"

FITTED_SLOPE = (
    "the efficiency of products was fitted to the growth of this time with the requests of a die, and "
    "to Table 2 without all parts"
)


TWICE = {
    "tpot": contradiction("Table 1 has 52 ms a token at 48 requests a die", "Table 2 has 48 at as many"),
    "qpm": contradiction("Table 1 has 572 QPM at 48 requests a die", "Table 2 has 616 at as many"),
}
"""By Little's law: 616 QPM of two nodes of ten for 59.206 s each are 3,039 in flight, 47.5 a die. What lies outside of
both values is a miss by either."""


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
_PAPER = {
    (row.panel, column): (number, row.in_flight)
    for row in PAPER
    for column, number in zip(_COLUMNS, (row.qpm, row.ttft_s, row.tpot_s), strict=True)
}
_WHY = {
    "qpm": "by Little's law and Table 2's lengths the row's own TTFT and TPOT give up to 4 % more than it prints, and "
    "our first tokens come sooner",
    "ttft": FIRST_TOKENS,
    "tpot": "only its growth with the requests of a die was fitted; its level is by bandwidth and "
    "latencies of CloudMatrix384 and by Table 2 without all parts",
}
FEW, MANY, NARROW, WIDE = "6p8_1d32-40", "6p8_1d32-48", "4p8_1d32-24", "8p8_1d64-24"
BATCH = "Sec. 6.2, batch size: 524 QPM and 48 ms a token at 40 requests a die, 572 and 52 at 48"
BATCH_TTFT = "Sec. 6.2, batch size: TTFT of 1.282 s at 40 requests a die, 2.196 at 48"
DOUBLED = "Sec. 6.2, scaling: 8P8-1D64 serves 481 QPM, 4P8-1D32 472"
DIES = "Sec. 6.2, data-parallel size: 37 ms a token on 8P8-1D64, 38 on 4P8-1D32"
_FACTS = {
    (FEW, "qpm"): BATCH, (FEW, "tpot"): BATCH, (FEW, "ttft"): BATCH_TTFT, (MANY, "ttft"): BATCH_TTFT,
    (NARROW, "qpm"): DOUBLED, (WIDE, "qpm"): DOUBLED, (NARROW, "tpot"): DIES, (WIDE, "tpot"): DIES,
}  # fmt: skip


def _more(panel: str, column: str) -> dict[str, Any]:
    """Fact, provenance and contradiction. QPM follows from the time per token by Little's law."""
    if column == "ttft":
        return {"fact": _FACTS.get((panel, column), ""), "fitted": FITTED_PREFILL if panel != MANY else ""}
    return {
        "fact": _FACTS.get((panel, column), f"Table 1, {panel}: time per token, and QPM by it"),
        "fitted": FITTED_SLOPE if "d32" in panel else "",
        "untold": TWICE[column] if panel == MANY else None,
    }


def _stated(column: str, panel: str, base: str) -> Number:
    """The ratio of two cells."""
    (above, many), (below, few) = _PAPER[panel, column], _PAPER[base, column]
    return ratio_stated((above, below), (precision(column, many), precision(column, few)))


CLAIMS = {
    **rows_stated(
        "table1",
        _ROWS,
        _COLUMNS,
        lambda panel, column: precision(column, _PAPER[panel, column][1]),
        _WHY,
        _more,
        " requests a die",
    ),
    "table1-batch-qpm": claim(
        "larger batches serve more: 48 over 40 requests a die (QPM)",
        _stated("qpm", MANY, FEW),
        over("qpm", MANY, FEW),
        fact=BATCH,
        fitted=FITTED_SLOPE,
    ),
    "table1-batch-ttft": claim(
        "and wait longer for their first token",
        _stated("ttft", MANY, FEW),
        over("ttft", MANY, FEW),
        "most of our TTFT is a request's own batch, which does not grow with the load",
        fact=BATCH_TTFT,
        fitted=FITTED_PREFILL,
    ),
    "table1-batch-tpot": claim(
        "and for the others", _stated("tpot", MANY, FEW), over("tpot", MANY, FEW), fact=BATCH, fitted=FITTED_SLOPE
    ),
    "table1-doubled": claim(
        "twice the instances and dies serve about as much of two nodes each: 8P8-1D64 over 4P8-1D32 (QPM)",
        level(481 / 472, "×", of_model(sqrt(2) * OFF_THE_LAW, precision("qpm", 0).because)),
        over("qpm", WIDE, NARROW),
        fact=DOUBLED,
        remark="the paper reads it as little gain; QPM of two nodes of 16 and of 8 is of nearly twice the cluster",
    ),
    "table1-dies": claim(
        "and twice the dies shorten a token a little (TPOT)",
        _stated("tpot", WIDE, NARROW),
        over("tpot", WIDE, NARROW),
        "each die reads the weights of half as many experts, and an all-to-all takes 7 us longer",
        fact=DIES,
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
