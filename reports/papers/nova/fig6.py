"""Fig. 6: shares of decode from profiles: the best (eq. 3), and the frontier of latency and throughput."""

from typing import Any

import numpy as np

from reports.claims.quantities import Panels, counter, value
from reports.claims.stated import claim, level
from reports.figures.forms import picture
from reports.figures.style import INK, MUTED, STAGES
from reports.papers.nova.common import ALONE_ONLY, BOUND, BY_ITSELF, SHARE, fixed, profile

TITLE = "Fig. 6: latency and throughput over decode's shares of the SMs, and the frontier"

EXPERIMENTS = ALONE_ONLY
QUICK = {"requests": "10"}

PAPER = {"vision": 24, "prefill": 30}
PAIR = (PAPER["vision"], PAPER["prefill"])
OUTPUTS = 50


def linear() -> float:
    """Correlation of decode's share, both stages together, with the throughput along the frontier (Fig. 6b)."""
    pairs = profile().frontier(OUTPUTS)
    rates = [profile().throughput(*pair) for pair in pairs]
    return float(np.corrcoef(rates, [sum(pair) for pair in pairs])[0, 1])


OPTIMUM = "Sec. V-A, eq. (3): 24 SMs for decode next to vision and 30 next to a prefill"
CLAIMS = {
    "fig6-vision": claim(
        "equation (3) gives decode 24 of 84 SMs during vision",
        level(24, "", SHARE),
        value(counter("thinker.decode_sms_vision"), BY_ITSELF),
        fact=OPTIMUM,
    ),
    "fig6-prefill": claim(
        "and 30 during a prefill",
        level(30, "", SHARE),
        value(counter("thinker.decode_sms_prefill"), BY_ITSELF),
        "thread blocks run in whole waves. With 26 to 30 SMs for decode a prefill needs "
        "more waves, 0.507 instead of 0.471 s; saving 1.6 ms in each concurrent decode iteration does "
        "not make up for it. (24, 30) is 0.3 % behind; contention for the L2 cache is missing",
        fact=OPTIMUM,
    ),
    "fig6-linear": claim(
        "along the frontier decode's share falls about linearly with throughput (correlation)",
        level((-1.0, -0.9), words="linear", neutral=0),
        fixed(linear),
    ),
    "fig4-tbt": claim(
        "on N_min = 12 SMs a decode iteration stays below 80 ms",
        level((0.0, 0.080), "ms", BOUND, "below 80 ms"),
        fixed(lambda: profile().vision[12].decode_s),
        check="below the fitted knee of 28 SMs memory traffic slows down with them: 29 ms × 28 / 12 are 68 ms",
    ),
}


@picture(TITLE, 2, modelled=True)
def draw(panels: Panels, left: Any, right: Any) -> str:
    """All pairs of shares with their frontier, and the shares along it."""
    ours, kept = profile(), profile().frontier(OUTPUTS)

    def over_throughput(pairs: list[tuple[int, int]], **how: Any) -> None:
        rates = [ours.throughput(*pair) for pair in pairs]
        left.plot(rates, [ours.end_to_end_s(*pair, OUTPUTS) for pair in pairs], **how)

    pairs, alone = [(v, p) for v in ours.vision for p in ours.prefill], {"ls": "none"}
    over_throughput(pairs, **alone, marker="o", ms=2, color=MUTED, label="a pair of shares")
    over_throughput(kept, color=INK, label="frontier")
    over_throughput([PAIR], **alone, marker="o", ms=6, mfc="white", mec=MUTED, label="the paper's pair")
    over_throughput([ours.search(OUTPUTS)], **alone, marker="D", ms=5, color=INK, label="ours, equation (3)")
    left.set(xlim=(0.35, 0.78), ylim=(3.4, 5.0), ylabel="E[T_e2e], s, equation (1)")
    left.set_xlabel("requests per second, equation (4)")
    rates = [ours.throughput(*pair) for pair in kept]
    for index, (stage, colour) in enumerate(zip(PAPER, STAGES, strict=False)):
        shares = [pair[index] for pair in kept]
        right.plot(rates, shares, color=colour, marker=".", label=f"decode's share during {stage}")
    right.set(ylim=(0, None), ylabel="SMs of decode, of 84", xlabel="requests per second along the frontier")
    return "Modelled; the paper's optimum is (24, 30)."
