"""Verdicts at 0.6 to 0.8 requests/s with 1 and 2 % more and less arithmetic of the system in question (`errors`).

A reader decides with it whether a verdict near saturation says anything of Nova. There 1 % of service time is 10 % of
latency, and the model is right within 2 %: a verdict that turns within 2 % is one about the model.
"""

from reports.claims.claim import Claim
from reports.claims.grading import NOT_MEASURED, outcome
from reports.claims.quantities import Measure, Panels, Tally
from reports.claims.stated import merged
from reports.figures.forms import Plot, figure, lines
from reports.papers.nova import fig10, fig13, fig15, section5_a
from reports.papers.nova.errors import ERRORS, label

TITLE = "Near saturation: verdicts at 0.6 to 0.8 requests/s with FLOP/s of one system 1 and 2 % off"

_CARDS = (fig10, fig13, fig15, section5_a)
EXPERIMENTS = merged(card.EXPERIMENTS for card in _CARDS)
QUICK = {"requests": "120"}

JUDGED: dict[str, Claim] = {
    name: each for card in _CARDS for name, each in card.CLAIMS.items() if each.untold is not None
}
"""The claims by id."""


def _over_errors(judged: Claim) -> dict[float, Measure]:
    """The claim's number over the error, in %."""
    assert judged.untold is not None and not isinstance(judged.measure, Tally)
    by_error = {error: judged.untold.over[label(error)] for error in ERRORS} | {0.0: judged.measure}
    return {100 * error: by_error[error] for error in sorted(by_error)}


def turns(judged: Claim, panels: Panels) -> tuple[str, list[str]]:
    """Return a claim's outcome by the model, and the errors at which it is another one."""
    assert judged.untold is not None
    found = outcome(judged, judged.measure(panels))
    others = {at: outcome(judged, measure(panels)) for at, measure in judged.untold.over.items()}
    return found, [at for at, other in others.items() if other != found]


def _said(panels: Panels) -> str:
    """Each verdict with the errors at which it turns."""
    found = {name: turns(judged, panels) for name, judged in JUDGED.items()}
    return "; ".join(
        f"{name} {verdict}, {'turns at ' + ', '.join(at) if at else 'does not turn'}"
        for name, (verdict, at) in found.items()
        if verdict != NOT_MEASURED
    )


def _plot(prefix: str, limit: float, ylabel: str) -> Plot:
    series = {name: _over_errors(judged) for name, judged in JUDGED.items() if name.startswith(prefix)}
    return lines(None, series, ylabel=ylabel, across={limit: ""}, xlabel="error of FLOP/s, %")


draw = figure(
    TITLE,
    _plot("fig10-mean", 1.001, "mean: best baseline over Nova"),
    _plot("fig10-max", 1.001, "largest: best baseline over Nova"),
    _plot("fig13", 1.001, "best fixed shares over adaptive"),
    _plot("fig15", 1.001, "RTX 4090: best over Nova"),
    _plot("section5-a-alpha", 1.1, "largest over smallest alpha"),
    _plot("section5-a-chunk", 1.001, "best other chunk over 128 tokens"),
    columns=3,
    caption=_said,
)
