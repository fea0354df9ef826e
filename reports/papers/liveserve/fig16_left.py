"""Fig. 16 left: what is generated and never heard, as more users interrupt, over how long replies and leads are."""

from itertools import pairwise

from reports.papers.liveserve.common import *

TITLE = "Fig. 16 left: generated tokens that nobody hears, ShareGPT in speech, c = 8"

PS = [0.0, 0.3, 0.7, 1.0]
LENGTHS = [12, 30, 60, 120, LONG_TOKENS]
"""Median text tokens of a reply: 60 (17 s) is ShareGPT's, and 235 are the 65.9 s of Fig. 15 right."""
CAPS = [2.0, 4.0, 6.0, 10.6]
_P, _LENGTH, _CAP = "over p", "over the length of replies", "over the lead cap, replies as in Fig. 15"

EXPERIMENTS = {
    _P: experiment("fig16-left", PAIR, "sharegpt", {**SHAREGPT, "c": 8}, p=PS),
    _LENGTH: experiment(
        "fig16-left-length", PAIR, "sharegpt", {**SHAREGPT, "c": 8, "p": 1.0}, reply_tokens=LENGTHS
    ),
    _CAP: experiment(
        "fig16-left-cap",
        ["liveserve"],
        "sharegpt",
        {**SHAREGPT, "c": 8, "p": 1.0, "reply_tokens": LONG_TOKENS},
        lead_cap_s=CAPS,
    ),
}
QUICK = {"requests": "64", "p": "0,1", "reply_tokens": "60,235", "lead_cap_s": "4,10.6"}

PAPER = {"vllm_omni": 0.4406, "liveserve": 0.1238}  # largest over p

_METRIC = "wasted_token_ratio"
PARTS = {"": ("both", "-"), "_talker": ("frames", "--"), "_entry": ("text", ":")}
"""Suffix of the metric -> label and line style: both stages together, and each alone."""


def _largest(engine: str) -> Any:
    return largest(*(value(_METRIC, of(_P, engine, p=p)) for p in PS))


def _cut(p: float) -> Any:
    return change(_METRIC, of(_P, "liveserve", p=p), since=of(_P, "vllm_omni", p=p))


def _long(engine: str) -> Setting:
    """Where everybody interrupts replies as long as the one of Fig. 15 right."""
    return of(_LENGTH, engine, reply_tokens=LONG_TOKENS)


_LEAD = (
    "an interruption wastes the lead, and half of the replies are no longer than 17 s, so that a lead of 10.6 s as in "
    "Fig. 15 is most of them. Text cannot be paced at all: the talker takes a token of text for each frame of 80 ms "
    "until the text ends, so it needs text 3.5 times as fast as it is spoken"
)
_LONGER = (
    "replies of 66 s leave more to save; a lead of 10.6 s is still wasted whole at each interruption, and the paper's "
    "12.38 % takes a smaller one (right)"
)

_TWO = "made of the two largest values, which the paper does not say are of one p"

CLAIMS = {
    "fig16-left-none": claim(
        "nobody interrupts: nothing is wasted (larger of both)",
        level(0.0, "%", within=0.001),
        largest(*(value(_METRIC, of(_P, engine, p=0.0)) for engine in PAIR)),
        "replies are cut short although nobody interrupts: some of the turns have failed",
        check="without interruptions every reply is heard to its end",
    ),
    "fig16-left-baseline": claim(
        "largest waste of the baseline",
        level(PAPER["vllm_omni"], "%", within=0.07),
        _largest("vllm_omni"),
        "the baseline's waste follows from the law of reply lengths, of which the paper gives no numbers",
    ),
    "fig16-left-liveserve": claim(
        "largest waste of LiveServe",
        level(PAPER["liveserve"], "%", within=0.03),
        _largest("liveserve"),
        _LEAD,
        chosen=PACED,
    ),
    "fig16-left-cut": claim(
        "LiveServe wastes less (mean change over p = 0.3, 0.7 and 1)",
        moves((-0.78, -0.72), within=0.1),
        average(*(_cut(p) for p in PS[1:])),
        _LEAD,
        chosen=PACED,
    ),
    "fig16-left-everybody": claim(
        "LiveServe wastes less where everybody interrupts (p = 1)",
        moves(PAPER["liveserve"] / PAPER["vllm_omni"] - 1, within=0.1),
        _cut(1.0),
        _LEAD,
        chosen=PACED,
        remark=_TWO,
    ),
    "fig16-left-long-baseline": claim(
        "the same with replies as long as in Fig. 15: waste of the baseline, p = 1",
        level(PAPER["vllm_omni"], "%", within=0.07),
        value(_METRIC, _long("vllm_omni")),
        "{percent:.0f} %: with such replies c = 8 keeps this talker busy, so that the baseline runs less far ahead",
    ),
    "fig16-left-long-liveserve": claim(
        "waste of LiveServe",
        level(PAPER["liveserve"], "%", within=0.03),
        value(_METRIC, _long("liveserve")),
        _LONGER,
        chosen=PACED,
    ),
    "fig16-left-long-cut": claim(
        "LiveServe wastes less",
        moves(PAPER["liveserve"] / PAPER["vllm_omni"] - 1, within=0.1),
        change(_METRIC, _long("liveserve"), since=_long("vllm_omni")),
        _LONGER,
        chosen=PACED,
        remark=_TWO,
    ),
}

ALL_INTERRUPT = {_P: EXPERIMENTS[_P].model_copy(update={"grid": {"p": [1.0]}})}
"""The experiments that the last claim alone needs."""


@picture(TITLE, 1, 3, bars=True, sharey=True)
def draw(panels: Panels, paper: Any, left: Any, middle: Any, right: Any) -> str:
    """Waste by p; where everybody interrupts, over the length of replies, and over the lead cap."""
    looks = engine_looks(*PAIR)
    series = {
        engine: ([over_seeds(of(_P, engine, p=p).points(panels), _METRIC) for p in PS], look)
        for engine, look in looks.items()
    }
    bars(left, [f"{p:g}" for p in PS], series, {engine: [0.0, None, None, paper[engine]] for engine in PAIR})
    left.set(xlabel="probability of a barge-in, p", ylabel="wasted tokens")
    for engine, look in looks.items():
        lengths = {n: of(_LENGTH, engine, reply_tokens=n) for n in LENGTHS}
        line_over(middle, panels, lengths, _METRIC, look, engine)
    middle.set(xlabel="text tokens of a reply, median, p = 1", xlim=(0, None))
    beside = {"textcoords": "offset points", "ha": "right", "va": "center", "fontsize": 9}
    for part, (label, dashes) in PARTS.items():
        caps = {cap: _waste(panels, cap, part) for cap in CAPS}
        line(right, caps, replace(looks["liveserve"], line=dashes), label)
        known = [(cap, spread.median) for cap, spread in caps.items() if spread.median is not None]
        if known:
            right.annotate(label, known[0], xytext=(-9, 0), **beside, color=looks["liveserve"].colour)
    right.axhline(paper["liveserve"], color=MUTED, lw=0.9, ls=(0, (2, 3)))
    right.annotate("dotted: paper's LiveServe, 12.38 %", (0.98, 0.27), xycoords=("axes fraction", "data"),
                   ha="right", color=MUTED, fontsize=9)  # fmt: skip
    right.set(xlabel=f"lead cap, s; replies of {LONG_TOKENS} tokens, p = 1", xlim=(0, None))
    in_per_cent(left, (0, 0.5))
    legend(left, paper_handle("paper: at p = 0, and its largest"))
    crossings = " ".join(
        f"{text} {_crossing(panels, part, paper['liveserve'])}."
        for text, part in (
            ("The paper's 12.38 % would take", ""),
            ("Of frames alone it would take", "_talker"),
        )
    )
    return (
        "Text tokens and codec frames that were generated and not heard, over all that were generated. The paper names "
        "its largest values, drawn here at p = 1, and not how long replies are: middle, over their length; left 60 "
        f"tokens, 17 s; {LONG_TOKENS} are the 65.9 s of Fig. 15 right. Right: LiveServe over how far generation may "
        f"run ahead of playback; 10.6 s is what Fig. 15 right shows. {crossings}"
    )


def _waste(panels: Mapping[str, Run], cap: float, part: str) -> Spread:
    return over_seeds(of(_CAP, "liveserve", lead_cap_s=cap).points(panels), f"{_METRIC}{part}")


def _crossing(panels: Mapping[str, Run], part: str, wanted: float) -> str:
    """Where this waste lies on the straight line between two measured caps."""
    found = [(cap, waste) for cap in CAPS if (waste := _waste(panels, cap, part).median) is not None]
    for (low, less), (high, more) in pairwise(found):
        if less <= wanted <= more:
            return f"a cap of about {low + (wanted - less) / (more - less) * (high - low):.1f} s"
    if found and found[0][1] > wanted:
        return f"less than the smallest cap here, {found[0][0]:g} s with {100 * found[0][1]:.1f} %"
    if found:
        return f"more than the largest cap here, {found[-1][0]:g} s with {100 * found[-1][1]:.1f} %"
    return "a cap that was not measured"
