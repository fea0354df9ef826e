"""Fig. 11 left: distribution of the time to first audio over uninterrupted turns, at c = 8."""

from reports.claims.claim import Claim
from reports.claims.quantities import of, ratio, value
from reports.claims.stated import claim, level, times
from reports.figures.forms import distribution, figure
from reports.papers.liveserve.common import AWAITED, PAIR, PROMPT, SHAREGPT, experiment

TITLE = "Fig. 11 left: distribution of the TTFP, ShareGPT in speech, c = 8"

EXPERIMENTS = {"c = 8": experiment("fig11-left", PAIR, "sharegpt", {**SHAREGPT, "c": 8, "p": 0})}
QUICK = {"requests": "64"}

PAPER = {  # engine -> percentile -> s
    "vllm_omni": {50: 0.86, 90: 1.38, 95: 1.45},
    "liveserve": {50: 0.53, 90: 0.84, 95: 0.92},
}

_BASELINE, _OURS = of("c = 8", "vllm_omni"), of("c = 8", "liveserve")


def _falls(percentile: int, name: str) -> Claim:
    before, after = PAPER["vllm_omni"][percentile], PAPER["liveserve"][percentile]
    return claim(
        f"{name} TTFP falls from {before:.2f} s to {after:.2f} s",
        times(after / before, within=0.1),
        ratio(f"audio_ttfp_p{percentile}", _OURS, to=_BASELINE),
        "ours to {percent:.0f} %: the slowest first packets wait for the thinker, because all prompts "
        "arrive at once at the start",
        chosen=AWAITED,
    )


CLAIMS = {
    "fig11-left-p50": _falls(50, "median"),
    "fig11-left-p90": _falls(90, "P90"),
    "fig11-left-p95": _falls(95, "P95"),
    **{
        f"fig11-left-baseline-p{percentile}": claim(
            f"{name} TTFP of the baseline",
            level(PAPER["vllm_omni"][percentile], "s", within=0.15 * PAPER["vllm_omni"][percentile]),
            value(f"audio_ttfp_p{percentile}", _BASELINE),
            "{ours:.2f} s",
            fitted=PROMPT if percentile == 50 else "",
        )
        for percentile, name in ((50, "median"), (90, "P90"), (95, "P95"))
    },
}

draw = figure(
    TITLE,
    distribution("audio_ttfp_s", {"vllm_omni": _BASELINE, "liveserve": _OURS}, marks=PAPER, xlabel="TTFP, s"),
    paper="paper: P50, P90, P95",
    caption="Further left is better. Share of turns with first audio within the time on the horizontal axis, "
    "from the scheduled end of the user's turn; turns pooled over seeds.",
)
