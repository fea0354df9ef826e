"""Fig. 13: throughput and time to first audio over the probability that users interrupt, c = 8."""

from reports.claims.quantities import Measure, Quantity, of, ratio, smallest
from reports.claims.stated import claim, times
from reports.figures.forms import figure, grid, lines
from reports.papers.liveserve.chosen_testbeds import on_testbeds, over_testbeds
from reports.papers.liveserve.common import AT_8, AWAITED, HALVED, HELD, PAIR, RPS, TAIL, experiment, over_limits

TITLE = "Fig. 13: throughput and TTFP as more users interrupt, ShareGPT in speech, c = 8"

PS = [0.0, 0.25, 0.5, 0.75, 1.0]
_PANEL = "c = 8"

EXPERIMENTS = {_PANEL: experiment("fig13", PAIR, "sharegpt", AT_8, p=PS), **on_testbeds("p = 0.5", [8])}
QUICK = {"requests": "64", "p": "0,0.5"}

PAPER = {0.5: 2.6, 0.75: 2.0}  # p -> LiveServe's effective RPS over the baseline's

_RATE = "Section 7.2, Fig. 13: effective RPS higher at every p, 2.6 times at 0.5 and 2.0 times at 0.75"
_REMARK = (
    "section 7.1 says that p is 0, 0.3, 0.7 or 1; this figure quotes 0.5 and 0.75. The paper states "
    "no TTFP limit, and a limit between the two systems' TTFP can give any ratio: see the picture"
)


def _gain(quantity: Quantity, p: float) -> Measure:
    return ratio(quantity, of(_PANEL, "liveserve", p=p), to=of(_PANEL, "vllm_omni", p=p))


_ON_TESTBEDS = over_testbeds("p = 0.5", 8, lambda ours, base: ratio("effective_rps", ours, to=base))

CLAIMS = {
    **{
        f"fig13-rps-{p:g}": claim(
            f"p = {p:g}: effective RPS × {PAPER[p]:g}",
            times(PAPER[p], within=RPS),
            _gain("effective_rps", p),
            HELD + "; no reply of the baseline breaks",
            fact=_RATE,
            untold=_ON_TESTBEDS if p == 0.5 else None,
            remark=_REMARK,
        )
        for p in PAPER
    },
    "fig13-rps-everywhere": claim(
        "effective RPS is higher at every p (smallest ratio)",
        times((1.05, 2.6), words="higher"),
        smallest(*(_gain("effective_rps", p) for p in PS)),
        HELD,
        fact=_RATE,
    ),
    **{
        f"fig13-p90-{p:g}": claim(
            f"p = {p:g}: P90 TTFP cut by more than half",
            times((0.3, 0.5), words="less than half"),
            _gain("audio_ttfp_p90", p),
            TAIL,
            fact="Sections 1 and 7.2, Fig. 13: P90 TTFP cut by more than half at p = 0.5 and 0.75",
            untold=HALVED if p == 0.5 else None,
            chosen=AWAITED,
            remark=_REMARK,
        )
        for p in PAPER
    },
}

_OVER_P = grid(_PANEL, PAIR, p=PS)
_RATIOS = ", ".join(f"{factor:g} × at p = {p:g}" for p, factor in PAPER.items())
draw = figure(
    TITLE,
    lines("effective_rps", _OVER_P),
    lines("audio_ttfp_p90", _OVER_P),
    over_limits({e: of(_PANEL, e, p=0.5) for e in PAIR}, title="effective RPS, p = 0.5"),
    caption="Left, higher is better: turns without a pause above 100 ms until they ended or were interrupted, "
    f"of any TTFP, per second of the steady window; the paper's LiveServe has {_RATIOS}. Middle, lower "
    "is better; the paper's LiveServe has less than half at both. Right: the same rate for turns that "
    "began within a limit; the paper names no limit.",
)
