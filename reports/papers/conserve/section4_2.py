"""Section 4.2: the profiled model of step times, on the deployments' devices."""

from reports.claims.bands import of_digits
from reports.claims.quantities import counter, each, value
from reports.claims.stated import claim, level
from reports.papers.conserve.loads import BOTH, SLO, at, both
from reports.papers.conserve.systems import OURS

TITLE = "Section 4.2: prediction of the time of a step by five terms"

_LOAD = "rate 2"
EXPERIMENTS = {f"{_LOAD}: {BOTH}": both(_LOAD, SLO["rate 2"], engines=[OURS])}
QUICK = {"requests": "40"}

CLAIMS = {
    "section4-2-error": claim(
        "the fit's relative error on steps it has not seen is below 4 % on average",
        level((0.0, 0.04), "%", within=of_digits(0.01)),
        each(value(counter("thinker.profile_error_mean_ppm"), at(_LOAD, OURS)), lambda ppm: ppm * 1e-6),
        "{percent:.1f} %: measured steps bend between the regimes of reading weights and of "
        "arithmetic, and the five terms do not",
    )
}
