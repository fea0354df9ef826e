"""Fig. 13: shares that follow the load against fixed ones."""

from reports.claims.claim import Untold
from reports.claims.quantities import Measure, ratio, smallest
from reports.claims.stated import claim, times
from reports.figures.forms import figure, lines
from reports.papers.nova.common import E2E, NEAR, OURS, Changed, at, gui, unchanged
from reports.papers.nova.errors import band, near_saturation, with_errors

TITLE = "Fig. 13: mean latency with adaptive and with fixed shares"

RATES = (0.4, 0.6, 0.8)
FIXED = ((18, 18), (24, 30), (36, 36))
"""SMs of decode next to vision and to prefill: fewer, the paper's defaults, more. [chosen]"""
ADAPTIVE = "adaptive"
_SERVED = {ADAPTIVE: gui("adaptive", [OURS], RATES)} | {
    f"{v}, {p}": gui(f"fixed-{v}-{p}", [OURS], RATES, adaptive=False, decode_sms_vision=v, decode_sms_prefill=p)
    for v, p in FIXED
}
EXPERIMENTS = _SERVED | with_errors(ADAPTIVE, "adaptive", OURS, RATES)
QUICK = {"requests": "120"}


def _best(rate: float, changed: Changed = unchanged) -> Measure:
    adaptive = changed(at(rate, panel=ADAPTIVE))
    return smallest(*(ratio(E2E, at(rate, panel=f"{v}, {p}"), to=adaptive) for v, p in FIXED))


def _untold(rate: float) -> Untold:
    return near_saturation("Nova with adaptive shares", lambda changed: _best(rate, changed))


FIXED_SHARES = "Sec. V-E, Fig. 13: adaptive shares outperform fixed ones at every rate"
CLAIMS = {
    f"fig13-{rate:g}": claim(
        f"at {rate:g} requests/s no fixed shares have a lower mean latency (best over adaptive)",
        times((1.001, 10.0), words="the lowest"),
        _best(rate),
        "hardly any request waits, so fixed shares of (18, 18) do as well",
        fact=FIXED_SHARES,
        untold=_untold(rate) if rate in NEAR else None,
    )
    for rate in RATES
}

_NAMES = {panel if panel == ADAPTIVE else f"fixed: {panel}": panel for panel in _SERVED}
draw = figure(
    TITLE,
    lines(
        E2E,
        {name: {rate: at(rate, panel=panel) for rate in RATES} for name, panel in _NAMES.items()},
        extra=band(E2E, {rate: at(rate, panel=ADAPTIVE) for rate in RATES}),
        xlabel="requests per second",
        ylabel="mean latency, s",
    ),
    caption="Fixed: SMs of decode during vision, and during a prefill, of 84.",
)
