"""Fig. 15 left: the speed of generation against the time to first audio, over concurrency, with barge-in."""

from reports.claims.claim import Claim
from reports.claims.quantities import largest, of, ratio, value
from reports.claims.stated import claim, level, times
from reports.figures.forms import figure, grid, lines
from reports.papers.liveserve.common import AWAITED, HALVED, PACED, PAIR, SHAREGPT, TAIL, TYPED_P90, experiment

TITLE = "Fig. 15 left: real-time factor against P90 TTFP, ShareGPT in speech, p = 0.5"

CS = [2, 4, 8, 12, 16]
_PANEL = "p = 0.5"

EXPERIMENTS = {_PANEL: experiment("fig15-left", PAIR, "sharegpt", {**SHAREGPT, "p": 0.5}, c=CS)}
QUICK = {"requests": "96", "c": "2,8,16"}

PAPER = {"vllm_omni": 1.54, "liveserve": 0.91}  # P90 TTFP at c = 8, s


def _below_one(metric: str, text: str) -> Claim:
    return claim(
        text,
        level((0.0, 1.0), words="faster than playback"),
        largest(*(value(metric, of(_PANEL, engine, c=c)) for engine in PAIR for c in CS)),
        "the talker is slower than playback for a tenth of the replies",
        fact="Section 7.3, Fig. 15 left: both generate faster than playback",
    )


CLAIMS = {
    "fig15-left-p90": claim(
        "c = 8: P90 TTFP falls from 1.54 to 0.91 s",
        times(PAPER["liveserve"] / PAPER["vllm_omni"], within=TYPED_P90),
        ratio("audio_ttfp_p90", of(_PANEL, "liveserve", c=8), to=of(_PANEL, "vllm_omni", c=8)),
        TAIL,
        untold=HALVED,
        chosen=AWAITED,
    ),
    "fig15-left-p90-rtf": _below_one("rtf_p90", "P90 RTF stays below 1 in both systems (largest over c)"),
    "fig15-left-median-rtf": _below_one("rtf_p50", "median RTF stays below 1 in both systems (largest over c)"),
    "fig15-left-slower": claim(
        "c = 8: LiveServe gives up generation speed for earlier first audio (median RTF over the baseline's)",
        times((1.05, 3.0), words="slower"),
        ratio("rtf_p50", of(_PANEL, "liveserve", c=8), to=of(_PANEL, "vllm_omni", c=8)),
        "few leads reach the cap",
        chosen=PACED,
    ),
}

_OVER_C = grid(_PANEL, PAIR, c=CS)
_MARKS = {1000 * ttfp_s: f"paper: {engine} at c = 8" for engine, ttfp_s in PAPER.items()}
draw = figure(
    TITLE,
    *(
        lines(metric, _OVER_C, against="audio_ttfp_p90", beside=str, across={1: ""}, ylabel=label, upright=_MARKS)
        for metric, label in (("rtf_p90", "P90 RTF"), ("rtf_p50", "median RTF"))
    ),
    caption="Left is better; below 1 generation is faster than playback. Numbers at the markers are c, and a "
    "curve joins their medians over the seeds. RTF is over uninterrupted replies.",
)
