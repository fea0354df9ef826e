"""Figs. 8 and 9: gain of two concurrent stages, and the cost for each, over the shares of decode."""

from typing import Any

import numpy as np

from reports.claims.quantities import Panels
from reports.claims.stated import claim, times
from reports.figures.forms import picture
from reports.figures.style import MUTED, STAGES
from reports.papers.nova.common import ALONE_ONLY, fixed, profile

TITLE = "Figs. 8 and 9: throughput and latency of two stages at once, over decode's share of the SMs"

EXPERIMENTS = ALONE_ONLY
QUICK = {"requests": "10"}

COLOURS = dict(zip(("vision", "prefill"), STAGES, strict=False))


def slower(stage: str, sms: int) -> tuple[float, float]:
    """Return the time of a pass of `stage` and of a decode iteration side by side over their time alone (Fig. 9)."""
    ours = profile()
    beside = getattr(ours, stage)[sms]
    return beside.pass_s / getattr(ours, f"{stage}_s"), beside.decode_s / ours.decode_s


def gain(stage: str, sms: int) -> float:
    """Work done side by side over work done in turn, in the same time (Fig. 8)."""
    return sum(1 / times for times in slower(stage, sms))


def _mean(quantity: Any) -> float:
    """Return the mean over the shares of Fig. 4's window, 18 to 36 SMs."""
    return float(np.mean([quantity(sms) for sms in range(18, 37, 2)]))


MORE = "Sec. V-B, Fig. 8: decode with vision or prefill gets more done than in turn"
CLAIMS = {
    "fig8-vision": claim(
        "decode together with vision on 18 to 36 SMs gets more done than in turn",
        times((1.01, 2.0), words="more"),
        fixed(lambda: _mean(lambda sms: gain("vision", sms))),
        fact=MORE,
    ),
    "fig8-prefill": claim(
        "the same together with a prefill",
        times((1.01, 2.0), words="more"),
        fixed(lambda: _mean(lambda sms: gain("prefill", sms))),
        fact=MORE,
    ),
    "fig8-more": claim(
        "more with vision than with a prefill, which moves more data",
        times((1.005, 2.0), words="more"),
        fixed(lambda: _mean(lambda sms: gain("vision", sms) / gain("prefill", sms))),
    ),
    "fig9-vision": claim(
        "vision needs more SMs than a prefill to stay quick (its slowdown over a prefill's)",
        times((1.01, 2.0), words="more"),
        fixed(lambda: _mean(lambda sms: slower("vision", sms)[0] / slower("prefill", sms)[0])),
        "both are bound by arithmetic in our model, and the last wave of thread blocks "
        "costs a prefill more, because it has fewer waves; contention for the L2 cache is missing",
    ),
}


@picture(TITLE, 2, modelled=True)
def draw(panels: Panels, left: Any, right: Any) -> str:
    """Draw the gain of two stages together, and the slowdown of each."""
    for stage, colour in COLOURS.items():
        # Half of them: the paper looks at 12 to 36.
        shares = [sms for sms in getattr(profile(), stage) if sms <= 42]
        beside, slowdowns = f"decode with {stage}", [slower(stage, sms) for sms in shares]
        left.plot(shares, [gain(stage, sms) for sms in shares], color=colour)
        right.plot(shares, [each[0] for each in slowdowns], color=colour, label=f"a pass of {stage}")
        right.plot(shares, [each[1] for each in slowdowns], color=colour, ls="--", label=beside)
    for ax in (left, right):
        ax.axhline(1.0, color=MUTED, lw=0.9)
        ax.set_xlabel("SMs of decode, of 84")
    left.set_ylabel("work done, over in turn (Fig. 8)")
    right.set_ylabel("time, over time alone (Fig. 9)")
    return "Modelled; each stage alone on all SMs is 1."
