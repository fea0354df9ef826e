"""Table 1: prefill instances, decode dies and batches."""

from reports.papers.omniinfer.cluster import *

TITLE = "Table 1: OmniInfer's prefill instances and decode dies (xPyD) and requests a die"


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

COLUMNS: Columns = {
    "qpm": ("QPM", qpm, "", 0.1),
    "ttft": ("TTFT", measured("ttft_mean_s"), "s", 0.2),
    "tpot": ("TPOT", measured("tpot_mean_s"), "ms", 0.1),
}

WHY = {
    "qpm": "follows from the time per token",
    "ttft": ONE_QUEUE,
    "tpot": "{ms:.0f} ms",
}


def _ratio(column: str, one: str, other: str) -> Any:
    quantity = COLUMNS[column][1]
    return quotient(value(quantity, at(one)), value(quantity, at(other)))


def _near(row: Row, column: str, paper: float) -> float:
    """Return the allowed distance: a share of the paper's value, or half of its difference from Table 2's value."""
    near = COLUMNS[column][3] * paper
    return min(near, abs(float(np.diff(TWICE[column])[0])) / 2) if row.panel == "6p8_1d32-48" else near


def _calibrated(row: Row, column: str) -> str:
    if column == "ttft":
        return FITTED_PREFILL
    return FITTED_SLOPE if column == "tpot" and row.shape.endswith("d32") else ""


CLAIMS = {
    **{
        f"table1-{row.panel}-{column}": claim(
            f"{row.name} requests a die: {name}",
            level(paper, unit, within=_near(row, column, paper)),
            value(quantity, at(row.panel)),
            WHY[column],
            calibrated=_calibrated(row, column),
            derived=LITTLE if column == "qpm" else "",
        )
        for row in PAPER
        for (column, (name, quantity, unit, _)), paper in zip(
            COLUMNS.items(), (row.qpm, row.ttft_s, row.tpot_s), strict=True
        )
    },
    "table1-batch-qpm": claim(
        "larger batches serve more: 48 over 40 requests a die (QPM)",
        times(572 / 524, within=0.045),
        _ratio("qpm", "6p8_1d32-48", "6p8_1d32-40"),
        "× {ours:.2f}",
        calibrated=FITTED_SLOPE,
    ),
    "table1-batch-ttft": claim(
        "and wait longer for their first token",
        times(2.196 / 1.282, within=0.35),
        _ratio("ttft", "6p8_1d32-48", "6p8_1d32-40"),
        "× {ours:.2f}",
        calibrated=FITTED_PREFILL,
    ),
    "table1-batch-tpot": claim(
        "and for the others",
        times(52 / 48, within=0.04),
        _ratio("tpot", "6p8_1d32-48", "6p8_1d32-40"),
        "× {ours:.2f}",
        calibrated=FITTED_SLOPE,
    ),
    "table1-doubled": claim(
        "twice the instances and dies serve about as much of two nodes each: 8P8-1D64 over 4P8-1D32 (QPM)",
        level(481 / 472, "×", within=0.08),
        _ratio("qpm", "8p8_1d64-24", "4p8_1d32-24"),
        remark="the paper reads it as little gain; QPM of two nodes of 16 and of 8 is of nearly twice the cluster",
    ),
    "table1-dies": claim(
        "and twice the dies shorten a token a little (TPOT)",
        times(37 / 38, within=0.013),
        _ratio("tpot", "8p8_1d64-24", "4p8_1d32-24"),
        "× {ours:.2f}: each die reads the weights of half as many experts, and an all-to-all takes 7 us longer",
    ),
}

draw = table(
    TITLE,
    (1, 3, 3.4),
    {row.name: (row.panel, (row.qpm, row.ttft_s, row.tpot_s)) for row in PAPER},
    COLUMNS,
    "Modelled: DeepSeek-R1 INT8 on dies of Ascend 910C; a row's number is its requests in flight a decode die. "
    "Outlined: the paper. QPM is of two nodes.",
)
