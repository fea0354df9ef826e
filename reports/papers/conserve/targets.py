"""ConServe's targets: 1.0, 1.1, 1.15 and 1.2 times Online-Only's P99."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from harness.experiments.experiment import Experiment
from reports.claims.quantities import Measure, Setting, largest, ratio, smallest
from reports.claims.stated import claim, level
from reports.figures.forms import Plot, behind, every, figure, lines
from reports.papers.conserve import fig6a
from reports.papers.conserve.figures import run_notes
from reports.papers.conserve.loads import ALONE, BOTH, CHAT, LLAMA_70B, SLO, TARGET, alone, at, both
from reports.papers.conserve.measures import TBT, TPS, TTFT
from reports.papers.conserve.systems import ONLINE_ONLY, OURS

TITLE = "ConServe's targets: 1.0 to 1.2 times Online-Only's P99"

FACTORS = (1.0, TARGET, 1.15, 1.2)
_CHAT, _70B = "chat 5", "70b chat"
LOADS: Mapping[str, Mapping[str, Any]] = {
    **fig6a.SETTINGS,
    _CHAT: {"deployment": "llama_8b_h100", "rate": 5.0, "requests": 600, **CHAT},
    _70B: {"shape": "mixed", **LLAMA_70B},
}
"""The loads of Fig. 6a, the load of Fig. 9's claims, and Table 2's mixed documents."""


def _name(load: str, factor: float) -> str:
    return f"{load}, {factor:g}"


EXPERIMENTS: dict[str, Experiment] = {}
for _load, _settings in LOADS.items():
    EXPERIMENTS[f"{_load}: {ALONE}"] = alone(_load, **{k: v for k, v in _settings.items() if k != "shape"})
    for _factor in FACTORS:
        _both = _name(_load, _factor)
        EXPERIMENTS[f"{_both}: {BOTH}"] = both(_both, SLO[_load], _factor, [OURS], **_settings)
QUICK = {"requests": "40"}


def _at(load: str, factor: float) -> Setting:
    return at(_name(load, factor), OURS)


def _over_alone(quantity: str, load: str, factor: float) -> Measure:
    return ratio(quantity, _at(load, factor), to=at(load, ONLINE_ONLY))


def _over(base: float, load: str, factor: float) -> Measure:
    """Offline tokens per second over the tokens per second with another factor."""
    return ratio(TPS, _at(load, factor), to=_at(load, base))


_GROUPS = {
    **{model.split("-")[-1].lower(): (model, list(names.values())) for model, names in fig6a.LOADS.items()},
    "chat": ("BurstGPT chats, Llama-3.1-8B", [_CHAT]),
    "70b-chat": ("BurstGPT chats, Llama-3.1-70B", [_70B]),
}
_TWO_STEPS = "with replies in a step of t_TBT the last tokens of a prompt need a second step"
CLAIMS = {
    f"targets-{short}-{name}": claim(
        f"(ours) {text}: {statement} (largest ratio)",
        level((1.0, 1.25), "×", within=0.05),
        largest(*(_over_alone(TTFT, load, factor) for load in loads for factor in factors)),
        "× {ours:.2f}: " + why,
    )
    for short, (text, loads) in _GROUPS.items()
    for name, statement, factors, why in (
        ("1", "with 1.0 P99 TTFT would be within 25 % of Online-Only at every rate", FACTORS[:1], _TWO_STEPS),
        ("1.1", "and with every factor from 1.1 to 1.2", FACTORS[1:], fig6a.AFTER),
    )
} | {
    "targets-throughput": claim(
        "(ours) the batch gets as much with 1.0 as with 1.1 (offline tokens/s, smallest ratio over the loads)",
        level(1.0, "×", within=0.05),
        smallest(*(_over(TARGET, load, 1.0) for load in LOADS)),
        "× {ours:.2f}: online prompts leave less of a shorter step",
    )
}


def _plot(measure: Callable[[str, float], Measure], label: str) -> Plot:
    series = {load: {factor: measure(load, factor) for factor in FACTORS} for load in LOADS}
    return lines(None, series, xlabel="targets over Online-Only's P99", ylabel=label, ylim=(None, None))


draw = figure(
    TITLE,
    _plot(partial(_over_alone, TTFT), "P99 TTFT over Online-Only's"),
    _plot(partial(_over_alone, TBT), "P99 TBT over Online-Only's"),
    _plot(partial(_over, 1.0), "offline tokens/s over those at 1.0"),
    points=behind([_at(load, factor) for load in LOADS for factor in FACTORS]),
    caption=lambda panels: (
        f"The other cards have {TARGET:g}. The paper: TTFT within 1.25, TBT within 1.19. {run_notes(every(panels))}"
    ),
)
