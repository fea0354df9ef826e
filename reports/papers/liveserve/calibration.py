"""What was calibrated, on numbers of the baseline alone: the talker's host time for each request, over all anchors at
once.

Two kinds of anchors pull apart: the TTFP at c = 8 and the continuity at c = 12 and 16 ask for a talker that 12 callers
saturate, one reply alone (Fig. 15 right) for a faster one. And with replies of 17 s, as spoken assistants give, all
break at once where the talker saturates; only short ones with a wide spread leave the paper's shares between.
"""

from reports.papers.liveserve.common import *

TITLE = "Calibration: the baseline's numbers over the talker's host time for each request"

FACTORS = [3.0, 3.6, 4.2, 4.8]
"""Of `talker.host_s_per_request`, 1.58 ms in public runs of a later vLLM-Omni."""
SHORT, LONG = "replies of 3.4 s (12 tokens, spread 1.5)", "replies of 17 s (60 tokens, spread 0.92)"
LENGTHS: dict[str, dict[str, Any]] = {SHORT: {}, LONG: {"reply_tokens": 60, "reply_sigma": 0.92}}
CS = [8, 12, 16]
ALONE = "one reply"

EXPERIMENTS = {
    **{
        f"{name}, × {factor:g}": experiment(
            "calibration",
            ["vllm_omni"],
            "sharegpt",
            {**SHAREGPT, **law, "p": 0, "scale": talker_scale(factor)},
            c=CS,
        )
        for name, law in LENGTHS.items()
        for factor in FACTORS
    },
    **{
        f"{ALONE}, × {factor:g}": experiment(
            "calibration-alone", ["vllm_omni"], "sharegpt", {**LONG_REPLY, "scale": talker_scale(factor)}
        )
        for factor in FACTORS
    },
}
QUICK = {"requests": "64"}

PAPER: dict[str, float] = {
    "P50 TTFP, c = 8": 0.86,
    "P90 TTFP, c = 8": 1.38,
    "P95 TTFP, c = 8": 1.45,
    "continuity, c = 12": 0.813,
    "continuity, c = 16": 0.735,
    "65.9 s of speech, alone": 8.2,
}
"""s, or shares; at c = 16 the middle of the two baselines' 0.703 and 0.766."""


def _alone(point: Measured) -> float | None:
    log = reply_log(point)
    return log and 65.9 * log.generated_by_s / float(log.delivered[1][-1])


ANCHORS: dict[str, tuple[int | None, Quantity]] = {
    "P50 TTFP, c = 8": (8, "audio_ttfp_p50"),
    "P90 TTFP, c = 8": (8, "audio_ttfp_p90"),
    "P95 TTFP, c = 8": (8, "audio_ttfp_p95"),
    "continuity, c = 12": (12, "continuity"),
    "continuity, c = 16": (16, "continuity"),
    "65.9 s of speech, alone": (None, _alone),
}
"""At which c they are read, and what."""


@picture(TITLE, 1, len(LENGTHS), 3.4, bars=True, sharey=True)
def draw(panels: Panels, paper: Any, *axes: Any) -> str:
    """Each anchor over the paper's value, over the factor; a panel for each law of lengths."""
    # Six are one more than there are colours beside an engine's own.
    own_looks = looks([Variant("vllm_omni"), *map(Variant, list(ANCHORS)[1:])]).values()
    for own, name in zip(axes, LENGTHS, strict=True):
        for (anchor, (c, quantity)), look in zip(ANCHORS.items(), own_looks, strict=True):
            panel, load = (ALONE, {}) if c is None else (name, {"c": c})
            settings = {factor: of(f"{panel}, × {factor:g}", "vllm_omni", **load) for factor in FACTORS}
            line_over(own, panels, settings, quantity, look, anchor, 1 / paper[anchor])
        own.axhline(1, color=MUTED, lw=0.9)
        own.axvline(PER_REQUEST, color=MUTED, lw=0.9, ls=(0, (2, 3)))
        own.set(title=name, xlabel="host time for each request, × public runs")
    axes[0].set(ylabel="baseline over the paper's", ylim=(0, 2))
    legend(axes[0])
    return (
        "On the line a number is the paper's. Dotted: what all cards have. A faster talker meets the reply that is "
        "served alone and no share of unbroken replies below 100 %; long replies break all at once."
    )
