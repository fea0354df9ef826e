"""Table 1: cost of choosing a victim with and without the eviction index, and its effect on the server.

Real timers around every call for free blocks that gave away content, on whatever machine runs this, charged to the
step in which they fell. So these records differ from run to run, and only ratios travel between machines.
"""

from typing import Any

from reports.claims.bands import of_mean, of_percentile
from reports.claims.quantities import Panels, Quantity, of, ratio, spread
from reports.claims.stated import claim, times
from reports.figures.forms import bars, figure
from reports.papers.liveserve.common import INTERACTIVE, RPS, SPOKEN_P90, N, experiment, returning
from reports.runs.measured import Measured

TITLE = "Table 1: cost of choosing victims with and without the index, by real timers"

INDEX, SCAN, LRU = "LiveServe", "w/o index", "vllm_omni (LRU)"
ROWS: dict[str, tuple[str, dict[str, Any]]] = {
    INDEX: ("liveserve", {"eviction_index": "heap"}),
    SCAN: ("liveserve", {"eviction_index": "tail_scan"}),
    LRU: ("vllm_omni", {}),
}

EXPERIMENTS = {
    row: experiment(
        "table1",
        [engine],
        "interactive",
        {**INTERACTIVE, "sessions": 72, "kv_pool_blocks": None, "c": 8, "p": 0, "charge_eviction": True, **settings},
    )
    for row, (engine, settings) in ROWS.items()
}
QUICK = {"stop_after_s": "120"}

PAPER = {  # mean and P90 overhead, s; effective RPS, 1/s; E2E P90, s
    INDEX: (0.093e-3, 0.222e-3, 2.625, 3.069),
    SCAN: (5.311e-3, 8.270e-3, 1.970, 3.381),
}


def _cost(name: str) -> Quantity:
    def quantity(point: Measured) -> float | None:
        cost_ms = point.record.manifest["cost"]["eviction"][name]
        return None if cost_ms is None else cost_ms / 1e3

    return quantity


mean_s, p90_s = _cost("mean_ms"), _cost("p90_ms")


def idle_blocks(point: Measured) -> float | None:
    """Return the free blocks of the pool, mean over the thinker's steps: the length of a scan once it is full."""
    steps = point.record.table("steps")
    of_thinker = steps["stage"].to_numpy() == "thinker"
    idle = (steps["kv_blocks"].to_numpy() - steps["kv_used"].to_numpy())[of_thinker]
    return float(idle.mean()) if idle.size else None


_SETTINGS = {row: of(row) for row in ROWS}
_INDEX, _SCAN = _SETTINGS[INDEX], _SETTINGS[SCAN]
_MEAN, _P90 = (ratio(quantity, _SCAN, to=_INDEX) for quantity in (mean_s, p90_s))
_SCALE = (
    "the cost of a scan grows with the blocks to look at, in our runs an H200's whole pool of 45,552; the "
    "paper does not state its size"
)
_SELDOM = (
    "few of our steps evict: a step needs a new block once in 16 tokens of a request, and answers are "
    "spoken and heard, so a scan delays a turn by tens of ms but hardly the whole replay"
)

CLAIMS = {
    "table1-mean": claim(
        "choosing victims by the index is cheaper than by tail scan, mean",
        times(5.311 / 0.093, within=of_mean(N)),
        _MEAN,
        _SCALE,
    ),
    "table1-p90": claim("the same, P90", times(8.270 / 0.222, within=of_percentile(0.9, N)), _P90, _SCALE),
    "table1-rps": claim(
        "effective RPS with the index over without",
        times(2.625 / 1.970, within=RPS),
        ratio("effective_rps", _INDEX, to=_SCAN),
        _SELDOM,
        remark="the table says effective RPS, the text QPS; the paper defines neither",
    ),
    "table1-e2e": claim(
        "P90 end-to-end latency with the index over without",
        times(3.069 / 3.381, within=SPOKEN_P90),
        ratio(returning("e2e_s", 90), _INDEX, to=_SCAN),
        _SELDOM,
    ),
    "table1-ttft": claim(
        "(ours) P90 text TTFT of returning turns with the index over without",
        times((0.5, 0.97), words="not given"),
        ratio(returning("ttft_s", 90), _INDEX, to=_SCAN),
        "few of these turns meet a scan",
        remark="a returning turn shows the charged time first: it allocates, evicts and then prefills",
    ),
}

_OVERHEAD = {"xscale": "log", "xlim": (0.01, 1e3)}
_COLUMNS: tuple[tuple[str, Quantity, str, dict[str, Any]], ...] = (
    ("mean overhead, ms", mean_s, "{:.3f}", _OVERHEAD),
    ("P90 overhead, ms", p90_s, "{:.3f}", _OVERHEAD),
    ("effective RPS, 1/s", "effective_rps", "{:.3f}", {"xmargin": 0.5}),
    ("E2E P90, s", returning("e2e_s", 90), "{:.2f}", {"xmargin": 0.5}),
)
"""Name, quantity, form of a value, and what else its axis has."""


def _facts(panels: Panels) -> str:
    counts: tuple[Quantity, ...] = (
        idle_blocks,
        lambda point: float(point.record.manifest["cost"]["eviction"]["calls"]),
        lambda point: float(point.record.counters.get("thinker.evict_blocks", 0)),
    )
    idle, calls, blocks = (spread(_SCAN.points(panels), count).median for count in counts)
    if idle is None or not calls or blocks is None:
        return "the scan was not measured."
    return (
        f"{calls:,.0f} of them a run, {blocks / calls:,.0f} blocks each on average. The scan looks at "
        f"every idle block ({idle:,.0f})."
    )


draw = figure(
    TITLE,
    *(
        bars(
            quantity,
            {"": _SETTINGS},
            marks={"": {row: values[column] for row, values in PAPER.items()}},
            text=form,
            rows=True,
            xlabel=name,
            **axes,
        )
        for column, (name, quantity, form, axes) in enumerate(_COLUMNS)
    ),
    height_in=2.4,
    sharey=True,
    paper="paper (eight GPUs, other timers)",
    caption=lambda panels: (
        f"An eviction is a call for free blocks that had to discard content; {_facts(panels)} "
        "Overheads on a logarithmic axis. 72 callers with 16,000 tokens of context each (pressure "
        "ratio 1.6); the measured time of every choice is charged to its step."
    ),
)
