"""Table 2: what each part of OmniInfer does to a cluster with 3,072 requests in flight.

A reader decides with it which part is worth its effort. The row "deferred" is ours: section 5.1 says that OmniProxy
holds requests back and sorts them anew, and the published code sends each on at once, as all other rows do.
"""

from typing import Any

from reports.claims.bands import Band
from reports.claims.quantities import Measure, average, counter, largest, value
from reports.claims.stated import Number, claim, level, times
from reports.papers.omniinfer import table1
from reports.papers.omniinfer.cluster import ALL, FIRST_TOKENS, at, cluster, steady
from reports.papers.omniinfer.table1 import TWICE
from reports.papers.omniinfer.tables import (
    COLUMNS,
    WHOLE,
    WINDOW,
    Rows,
    over,
    precision,
    ratio_stated,
    rows_stated,
    table,
)  # fmt: skip
from reports.runs.measured import Measured

TITLE = "Table 2: OmniInfer with and without each of its parts, six prefill instances and 64 decode dies"

FULL, PLACEMENT, ATTENTION, PROXY, BARE = "6p8_1d32-48", "placement", "attention", "proxy", "all"
IN_FLIGHT = 3072
NGINX: dict[str, Any] = {"routing": "round_robin", "decode_routing": "round_robin"}
WITHOUT: dict[str, dict[str, Any]] = {
    PLACEMENT: {"placement": "sequential"},
    ATTENTION: {"attention": "full"},
    PROXY: NGINX,
    BARE: {"placement": "sequential", "attention": "full"} | NGINX,
}
DEFERRED, DRIFT, STILL = "deferred", "drift", "drift-still"
DRIFTS: dict[str, Any] = {"expert_drift_s": 300.0}
"""[chosen] as in `placement`: within five minutes, which is about a run, a quarter of the experts change their ranks.
The paper says that the load of experts changes, not how fast."""
QUICK = {"requests": "10752"}

NAMES = {
    FULL: "OmniInfer",
    PLACEMENT: "w/o OmniPlacement",
    ATTENTION: "w/o OmniAttn",
    PROXY: "w/o OmniProxy",
    BARE: "w/o all",
}

PAPER: dict[str, tuple[float, ...]] = {
    FULL: WHOLE,
    PLACEMENT: (1.342, 2.419, 0.065, 0.068, 463, 78.025, 196.226, 45_372, 169_083),
    ATTENTION: (1.237, 2.174, 0.055, 0.057, 554, 65.791, 161.141, 54_533, 202_628),
    PROXY: (3.683, 10.711, 0.050, 0.061, 575, 63.451, 157.843, 56_969, 211_279),
    BARE: (1.224, 3.374, 0.075, 0.101, 404, 88.169, 213.846, 39_954, 149_500),
}
"""Values by row, in the order of the columns; s, QPM and tokens/s."""

EXPERIMENTS = {
    FULL: table1.EXPERIMENTS[FULL],
    **{panel: cluster("6p8_1d32", IN_FLIGHT, f"-without-{panel}", **ALL | less) for panel, less in WITHOUT.items()},
    DEFERRED: cluster("6p8_1d32", IN_FLIGHT, "-deferred", **ALL | {"routing": "omniproxy", "deferred": True}),
    DRIFT: cluster("6p8_1d32", IN_FLIGHT, "-drift", **ALL | DRIFTS),
    STILL: cluster("6p8_1d32", IN_FLIGHT, "-drift-still", **ALL | DRIFTS, rebalance=False),
}

_WHY = dict.fromkeys(COLUMNS, "follows from the time per token, which is as in Table 1") | {
    "ttft": FIRST_TOKENS,
    "ttft-p99": "as the mean",
    "tpot": "Table 1 has 52 ms for the system that has 48 here, and all our rows follow Table 1",
    "tpot-p99": "all dies step together, so P99 lies at the mean unless requests wait for a place on a full die",
    "e2e-p99": "set by the longest replies: follows from the time per token and from lengths; only their mean is known",
}
WHOLE_TPOT = "Abstract: 36 % less time per token, 48 ms for 75 without all parts"
WHOLE_QPM = "Sec. 6.2, overall: 52 % more, 616 QPM for 404 without all parts"
SPARSE = "Sec. 6.2, sparse computing: 33 % and 11 % more, 463 QPM without OmniPlacement and 554 without OmniAttn"
TRADE_OFF = "Sec. 6.2, trade-off: more throughput raises TTFT, from 1.342 s and 1.237 s"
PROXY_QPM = "Sec. 6.2, OmniProxy: from 575 to 616 QPM"
PROXY_TTFT = "Abstract: OmniProxy takes 38 % off TTFT, 3.683 s"
PROXY_TTFT_P99 = "Table 2: p99 of TTFT falls from 10.711 to 4.198 s by OmniProxy"
PROXY_TPOT_P99 = "Table 2: p99 of TPOT falls from 61 to 50 ms by OmniProxy"
_FACTS = {
    (BARE, "tpot"): WHOLE_TPOT, (BARE, "qpm"): WHOLE_QPM,
    (PLACEMENT, "qpm"): SPARSE, (ATTENTION, "qpm"): SPARSE,
    (PLACEMENT, "ttft"): TRADE_OFF, (ATTENTION, "ttft"): TRADE_OFF,
    (PROXY, "qpm"): PROXY_QPM, (PROXY, "ttft"): PROXY_TTFT, (FULL, "ttft"): PROXY_TTFT,
    (PROXY, "ttft-p99"): PROXY_TTFT_P99, (FULL, "ttft-p99"): PROXY_TTFT_P99, (PROXY, "tpot-p99"): PROXY_TPOT_P99,
}  # fmt: skip


def off_the_law(point: Measured) -> float | None:
    """Return the relative deviation of the requests in flight from throughput times mean time."""
    part = steady(point)
    return None if part is None else abs(part.littles_law / part.in_flight - 1)


def _by_paper(row: tuple[float, ...]) -> Measure:
    """Return the requests in flight by a published row over the measured number; the same for each seed."""
    columns = dict(zip(COLUMNS, row, strict=True))
    share = columns["qpm"] * 10 / 2 / 60 * columns["e2e"] / IN_FLIGHT
    return value(lambda point: share, at(FULL))


def _fitted(panel: str, column: str) -> str:
    fitted = "{} was fitted to this row's time per token, which all but TTFT follows from"
    if panel == PLACEMENT and not column.startswith("ttft"):
        return fitted.format("Zipf's exponent of the experts")
    if panel == BARE and column in ("tpot", "qpm", "e2e", "ott", "ttt"):
        return fitted.format("what products reach")
    sized = "mean lengths of 3,200 and 1,180 tokens, and their spread, were taken from this column and others"
    return f"{sized} of the table" if column in ("e2e", "ott", "ttt", "e2e-p99") else ""


def _more(panel: str, column: str) -> dict[str, Any]:
    """Fact, provenance and contradiction. The time per token decides what is counted in a window."""
    follows = column in ("tpot", *WINDOW)
    row = f"Table 2, {NAMES[panel]}: time per token, and what follows from it" if follows else ""
    return {
        "fact": _FACTS.get((panel, column), row),
        "fitted": _fitted(panel, column),
        "untold": TWICE.get(column.removesuffix("-p99")) if panel == FULL else None,
    }


def _precision(panel: str, column: str) -> Band:
    return precision(column, IN_FLIGHT, PAPER[panel])


def _stated(column: str, panel: str, base: str) -> Number:
    """The ratio of two cells."""
    index = list(COLUMNS).index(column)
    numbers = PAPER[panel][index], PAPER[base][index]
    return ratio_stated(numbers, (_precision(panel, column), _precision(base, column)))


_ROWS: Rows = {name: (panel, PAPER[panel]) for panel, name in NAMES.items()}
CLAIMS = {
    **rows_stated("table2", _ROWS, COLUMNS, _precision, _WHY, _more),
    "table2-gains": claim(
        "all parts together serve 52 % more (QPM over that without all)",
        _stated("qpm", FULL, BARE),
        over("qpm", FULL, BARE),
        "the time per token and the routers' part in it; with Table 1's 572 QPM it would be × 1.42",
        fact=WHOLE_QPM,
    ),
    "table2-tpot-falls": claim(
        "and take 36 % less time per token",
        _stated("tpot", FULL, BARE),
        over("tpot", FULL, BARE),
        "experts are balanced and less KV is read; what else a step costs is the same; with Table 1's 52 ms it would "
        "be × 0.69",
        fact=WHOLE_TPOT,
    ),
    "table2-placement-gains": claim(
        "OmniPlacement serves 33 % more",
        _stated("qpm", FULL, PLACEMENT),
        over("qpm", FULL, PLACEMENT),
        "the row without it was fitted, and the whole system follows Table 1, with whose 572 QPM it would be × 1.24",
        fact=SPARSE,
    ),
    "table2-attention-gains": claim(
        "OmniAttn serves 11 % more",
        _stated("qpm", FULL, ATTENTION),
        over("qpm", FULL, ATTENTION),
        "by the KV that half of the layers do not read",
        fact=SPARSE,
    ),
    "table2-proxy-gains": claim(
        "OmniProxy serves 616 QPM where nginx's round robin serves 575",
        _stated("qpm", FULL, PROXY),
        over("qpm", FULL, PROXY),
        "× 1.02, all of it by decode: the fullest die, which sets the step, has fewer tokens",
        fact=PROXY_QPM,
    ),
    "table2-proxy-less-ttft": claim(
        "and takes 38 % off TTFT",
        _stated("ttft", FULL, PROXY),
        over("ttft", FULL, PROXY),
        "its faster decode brings each prefill instance more requests, where it is nearly saturated: the longer queue "
        "outweighs the better choice of an instance",
        fact=PROXY_TTFT,
    ),
    "table2-proxy-less-ttft-p99": claim(
        "and 61 % off its p99",
        _stated("ttft-p99", FULL, PROXY),
        over("ttft-p99", FULL, PROXY),
        "nobody comes to an instance behind a queue while another has none",
        fact=PROXY_TTFT_P99,
    ),
    "table2-proxy-less-tpot-p99": claim(
        "and 18 % off the p99 of TPOT",
        _stated("tpot-p99", FULL, PROXY),
        over("tpot-p99", FULL, PROXY),
        "by round robin requests wait for a place on a full die",
        fact=PROXY_TPOT_P99,
    ),
    "table2-coupled": claim(
        "TTFT is lower without OmniPlacement: slower decode sends fewer requests to the prefill instances",
        _stated("ttft", PLACEMENT, FULL),
        over("ttft", PLACEMENT, FULL),
        "a smaller load shortens waiting less where one queue serves all instances",
        fact=TRADE_OFF,
    ),
    "table2-coupled-attention": claim(
        "and without OmniAttn",
        _stated("ttft", ATTENTION, FULL),
        over("ttft", ATTENTION, FULL),
        "a smaller load shortens waiting less where one queue serves all instances",
        fact=TRADE_OFF,
    ),
    "table2-deferred-ttft": claim(
        "(ours) requests that are held back until an instance is free get their first token sooner (TTFT over that of "
        "dispatch at once)",
        times((0.5, 0.99), words="sooner"),
        over("ttft", DEFERRED, FULL),
        "a request that stays at the proxy lets shorter prompts pass",
    ),
    "table2-deferred-ttft-p99": claim(
        "(ours) and so does the slowest percent (P99 of TTFT over that of dispatch at once)",
        times((0.5, 0.99), words="sooner"),
        over("ttft-p99", DEFERRED, FULL),
        "a request that stays at the proxy lets shorter prompts pass",
    ),
    "table2-drift": claim(
        "(ours) while experts change their ranks, Algorithm 2 saves time per token (over the first layout's)",
        times((0.5, 0.99), words="saves"),
        over("tpot", DRIFT, STILL),
    ),
    "table2-drift-cost": claim(
        "(ours) and holds what a token takes without drift",
        level(1.0, "×", within=0.05),
        over("tpot", DRIFT, FULL),
        "between two rearrangements the load goes on",
    ),
    "table2-drift-moves": claim(
        "(ours) layers that Algorithm 2 moves in a run under drift",
        level((1.0, 10_000.0), "", words="acts"),
        value(counter("layers_moved"), at(DRIFT)),
    ),
    "table2-rest-moves": claim(
        "(ours) and without drift",
        level((0.0, 0.5), "", words="none"),
        value(counter("layers_moved"), at(FULL)),
    ),
    "table2-law": claim(
        "(ours) throughput times mean time is what is in flight (Little's law; how far a row misses it, at most)",
        level((0.0, 0.05), "%", words="none"),
        largest(*(value(off_the_law, at(panel)) for panel in NAMES)),
        check="a law of any steady system: were it missed, the window would not be steady",
    ),
    "table2-law-paper": claim(
        "(ours) the paper's rows obey it where QPM is of two nodes of ten (in flight by E2E and QPM, mean, over 3,072)",
        level(1.0, "×", within=0.05),
        average(*map(_by_paper, PAPER.values())),
        check="arithmetic on published numbers: QPM as throughput of the whole cluster would leave a fifth of them",
    ),
}  # fmt: skip
draw = table(
    TITLE,
    (3, 2.2),
    _ROWS,
    COLUMNS,
    "Modelled: DeepSeek-R1 INT8 on 160 dies of Ascend 910C, 3,072 requests in flight, in the steady window. "
    "Outlined: the paper. QPM is of two nodes, as its columns multiply to. Zipf's exponent of the experts is fitted to "
    "TPOT without OmniPlacement, what products reach to TPOT without all parts and to Table 1.",
)
