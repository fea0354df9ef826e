"""Table 2: what each part of OmniInfer does to a cluster with 3,072 requests in flight."""

from collections.abc import Sequence
from typing import Any

from reports.claims.quantities import Measure, average, counter, largest, value
from reports.claims.stated import claim, level, times
from reports.papers.omniinfer import table1
from reports.papers.omniinfer.cluster import ALL, FITTED_PREFILL, ONE_QUEUE, at, cluster, steady
from reports.papers.omniinfer.tables import COLUMNS, TWICE, Rows, over, rows_stated, table
from reports.runs.measured import Measured

TITLE = "Table 2: OmniInfer with and without each of its parts, six prefill instances and 64 decode dies"

FULL, PLACEMENT, ATTENTION, PROXY, BARE = "6p8_1d32-48", "placement", "attention", "proxy", "all"
IN_FLIGHT = 3072
NGINX: dict[str, Any] = {"routing": "round_robin", "decode_routing": "round_robin", "deferred": False}
WITHOUT: dict[str, dict[str, Any]] = {
    PLACEMENT: {"placement": "sequential"},
    ATTENTION: {"attention": "full"},
    PROXY: NGINX,
    BARE: {"placement": "sequential", "attention": "full"} | NGINX,
}
DRIFT, STILL = "drift", "drift-still"
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
    FULL: (2.292, 4.198, 0.048, 0.050, 616, 59.206, 148.364, 60_575, 225_546),
    PLACEMENT: (1.342, 2.419, 0.065, 0.068, 463, 78.025, 196.226, 45_372, 169_083),
    ATTENTION: (1.237, 2.174, 0.055, 0.057, 554, 65.791, 161.141, 54_533, 202_628),
    PROXY: (3.683, 10.711, 0.050, 0.061, 575, 63.451, 157.843, 56_969, 211_279),
    BARE: (1.224, 3.374, 0.075, 0.101, 404, 88.169, 213.846, 39_954, 149_500),
}
"""Values by row, in the order of the columns; s, QPM and tokens/s."""

EXPERIMENTS = {
    FULL: table1.EXPERIMENTS[FULL],
    **{
        panel: cluster("6p8_1d32", IN_FLIGHT, f"-without-{panel}", **ALL | less)
        for panel, less in WITHOUT.items()
    },
    DRIFT: cluster("6p8_1d32", IN_FLIGHT, "-drift", **ALL | DRIFTS),
    STILL: cluster("6p8_1d32", IN_FLIGHT, "-drift-still", **ALL | DRIFTS, rebalance=False),
}

_WHY = dict.fromkeys(COLUMNS, "follows from the time per token") | {
    "ttft": ONE_QUEUE,
    "ttft-p99": "{ours:.2f} s: see the mean",
    "tpot": "{ms:.0f} ms: Table 1 has 52 ms for the system whose row here has 48, and ours follows Table 1",
    "tpot-p99": "{ms:.0f} ms: all dies step together, so that requests differ by when they run and by how long they "
    "wait for a place on a die that has 48 requests",
    "e2e-p99": "set by the longest replies: follows from the time per token and from lengths; only their mean is known",
}


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
    if panel == FULL and column == "ttft":
        return FITTED_PREFILL
    sized = "mean lengths of 3,200 and 1,180 tokens, and their spread, were taken from this column and others"
    return f"{sized} of the table" if column in ("ott", "ttt", "e2e-p99") else ""


def _others(panel: str, column: str) -> Sequence[float]:
    """A row is distinguished from the whole system's, and that one from all other rows and from its row in Table 1."""
    values = {name: row[list(COLUMNS).index(column)] for name, row in PAPER.items()}
    whole = values.pop(FULL)
    return [*values.values(), *TWICE.get(column, ())[:1]] if panel == FULL else [whole]


_ROWS: Rows = {name: (panel, PAPER[panel]) for panel, name in NAMES.items()}
CLAIMS = {
    **rows_stated("table2", _ROWS, COLUMNS, _WHY, _fitted, _others),
    "table2-gains": claim(
        "all parts together serve 52 % more (QPM over that without all)",
        times(1.52, within=0.1),
        over("qpm", FULL, BARE),
        "× {ours:.2f}: the time per token and the routers' part in it",
    ),
    "table2-tpot-falls": claim(
        "and take 36 % less time per token",
        times(0.64, within=0.05),
        over("tpot", FULL, BARE),
        "× {ours:.2f}: experts are balanced and less KV is read; what else a step costs is the same",
    ),
    "table2-attention-gains": claim(
        "OmniAttn serves 11 % more",
        times(616 / 554, within=0.05),
        over("qpm", FULL, ATTENTION),
        "× {ours:.2f}: by the KV that half of the layers do not read",
    ),
    "table2-proxy-gains": claim(
        "OmniProxy serves 616 QPM where nginx's round robin serves 575",
        times(616 / 575, within=0.035),
        over("qpm", FULL, PROXY),
        "× {ours:.2f}, all of it by decode: the fullest die, which sets the step, has fewer tokens",
    ),
    "table2-proxy-less-ttft": claim(
        "and takes 38 % off TTFT",
        times(2.292 / 3.683, within=0.15),
        over("ttft", FULL, PROXY),
        "× {ours:.2f}: one queue in front of six instances instead of six, less what OmniProxy's faster decode "
        "brings them in requests",
    ),
    "table2-proxy-less-ttft-p99": claim(
        "and 61 % off its p99",
        times(4.198 / 10.711, within=0.15),
        over("ttft-p99", FULL, PROXY),
        "× {ours:.2f}: nobody comes to an instance behind a queue while another has none",
    ),
    "table2-proxy-less-tpot-p99": claim(
        "and 18 % off the p99 of TPOT",
        times(50 / 61, within=0.08),
        over("tpot-p99", FULL, PROXY),
        "× {ours:.2f}: by round robin requests wait for a place on a full die",
    ),
    "table2-coupled": claim(
        "TTFT is lower without OmniPlacement: slower decode sends fewer requests to the prefill instances",
        times(1.342 / 2.292, within=0.2),
        over("ttft", PLACEMENT, FULL),
        "× {ours:.2f}: a smaller load shortens waiting less where one queue serves all instances",
    ),
    "table2-coupled-attention": claim(
        "and without OmniAttn",
        times(1.237 / 2.292, within=0.2),
        over("ttft", ATTENTION, FULL),
        "× {ours:.2f}: a smaller load shortens waiting less where one queue serves all instances",
    ),
    "table2-drift": claim(
        "(ours) while experts change their ranks, Algorithm 2 saves time per token (over the first layout's)",
        times((0.5, 0.99), words="saves"),
        over("tpot", DRIFT, STILL),
        "× {ours:.2f}",
    ),
    "table2-drift-cost": claim(
        "(ours) and holds what a token takes without drift",
        level(1.0, "×", within=0.05),
        over("tpot", DRIFT, FULL),
        "× {ours:.2f}: between two rearrangements the load goes on",
    ),
    "table2-drift-moves": claim(
        "(ours) layers that Algorithm 2 moves in a run under drift",
        level((1.0, 10_000.0), "", words="acts"),
        value(counter("layers_moved"), at(DRIFT)),
        "{ours:.0f}",
    ),
    "table2-rest-moves": claim(
        "(ours) and without drift",
        level((0.0, 0.5), "", words="none"),
        value(counter("layers_moved"), at(FULL)),
        "{ours:.0f}",
    ),
    "table2-law": claim(
        "(ours) throughput times mean time is what is in flight (Little's law; how far a row misses it, at most)",
        level((0.0, 0.05), "%", words="(ours) 0"),
        largest(*(value(off_the_law, at(panel)) for panel in NAMES)),
        check="a law of any steady system: were it missed, the window would not be steady",
    ),
    "table2-law-paper": claim(
        "the paper's rows obey it where QPM is of two nodes of ten (in flight by E2E and QPM, mean, over 3,072)",
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
    "Modelled: DeepSeek-R1 INT8 on 160 dies of Ascend 910C, 3,072 requests in flight, between ramp and drain. "
    "Outlined: the paper. QPM is of two nodes, as its columns multiply to. Zipf's exponent of the experts is fitted to "
    "TPOT without OmniPlacement, what products reach to TPOT without all parts and to Table 1.",
)
