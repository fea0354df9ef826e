"""Fig. 11 left: distribution of the time to first audio over uninterrupted turns, at c = 8."""

from reports.claims.bands import of_percentile
from reports.claims.claim import Claim
from reports.claims.quantities import of, ratio, value
from reports.claims.stated import claim, level, merged, times
from reports.figures.forms import distribution, figure
from reports.papers.liveserve.chosen_testbeds import on_testbeds, over_testbeds
from reports.papers.liveserve.common import AT_8, AWAITED, PAIR, PROMPT, SPREAD_OUT, TAIL, TTFP_SIGMA, N, experiment

TITLE = "Fig. 11 left: distribution of the TTFP, ShareGPT in speech, c = 8"

ON_THE_SERVER = {"c = 8": experiment("fig11-left", PAIR, "sharegpt", {**AT_8, "p": 0})}
EXPERIMENTS = ON_THE_SERVER | on_testbeds("p = 0", [8])
QUICK = {"requests": "64"}

PAPER = {  # engine -> percentile -> s
    "vllm_omni": {50: 0.86, 90: 1.38, 95: 1.45},
    "liveserve": {50: 0.53, 90: 0.84, 95: 0.92},
}

_BASELINE, _OURS = of("c = 8", "vllm_omni"), of("c = 8", "liveserve")


_FACT = "Section 7.2, Fig. 11 left: P50, P90 and P95 fall from 0.86, 1.38 and 1.45 s to 0.53, 0.84 and 0.92 s"


def _falls(percentile: int, name: str) -> dict[str, Claim]:
    before, after = PAPER["vllm_omni"][percentile], PAPER["liveserve"][percentile]
    band, metric = of_percentile(percentile / 100, N, TTFP_SIGMA, 0.01), f"audio_ttfp_p{percentile}"
    return {
        f"fig11-left-p{percentile}": claim(
            f"{name} TTFP falls from {before:.2f} s to {after:.2f} s",
            times(after / before, within=band),
            ratio(metric, _OURS, to=_BASELINE),
            TAIL,
            fact=_FACT,
            untold=over_testbeds("p = 0", 8, lambda ours, baseline: ratio(metric, ours, to=baseline)),
            chosen=AWAITED,
        ),
        f"fig11-left-baseline-p{percentile}": claim(
            f"{name} TTFP of the baseline",
            level(before, "s", within=band),
            value(metric, _BASELINE),
            SPREAD_OUT,
            fact=_FACT,
            untold=over_testbeds("p = 0", 8, lambda ours, baseline: value(metric, baseline)),
            fitted=PROMPT if percentile == 50 else "",
        ),
        f"fig11-left-liveserve-p{percentile}": claim(
            f"{name} TTFP of LiveServe",
            level(after, "s", within=band),
            value(metric, _OURS),
            SPREAD_OUT,
            fact=_FACT,
            untold=over_testbeds("p = 0", 8, lambda ours, baseline: value(metric, ours)),
            chosen=AWAITED,
        ),
    }


CLAIMS = merged([_falls(50, "median"), _falls(90, "P90"), _falls(95, "P95")])

draw = figure(
    TITLE,
    distribution("audio_ttfp_s", {"vllm_omni": _BASELINE, "liveserve": _OURS}, marks=PAPER, xlabel="TTFP, s"),
    paper="paper: P50, P90, P95",
    caption="Further left is better. Share of turns with first audio within the time on the horizontal axis, "
    "from the scheduled end of the user's turn; turns pooled over seeds.",
)
