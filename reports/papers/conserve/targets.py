"""ConServe's targets: 1.0, 1.1, 1.15 and 1.2 times Online-Only's P99."""

from reports.papers.conserve import fig6a
from reports.papers.conserve.common import *

TITLE = "ConServe's targets: 1.0 to 1.2 times Online-Only's P99"

FACTORS = (1.0, TARGET, 1.15, 1.2)
_CHAT, _70B = "chat 5", "70b chat"
LOADS: Mapping[str, Mapping[str, Any]] = {
    **fig6a.SETTINGS,
    _CHAT: {"deployment": "llama_8b_h100", "rate": 5.0, "requests": 600, **CHAT},
    _70B: {"shape": "mixed", **LLAMA_70B},
}
"""The loads of Fig. 6a, the load of Fig. 9's claims, and Table 2's mixed documents."""


def _named(load: str, factor: float) -> str:
    return f"{load}, {factor:g}"


def _of(load: str) -> dict[str, Experiment]:
    settings = LOADS[load]
    unmixed = {name: each for name, each in settings.items() if name != "shape"}
    return {f"{load}: {ALONE}": alone(load, **unmixed)} | {
        f"{_named(load, factor)}: {BOTH}": both(_named(load, factor), SLO[load], factor, [OURS], **settings)
        for factor in FACTORS
    }


EXPERIMENTS = merged(map(_of, LOADS))
QUICK = {"requests": "40"}


def _over_alone(quantity: str, load: str, factor: float) -> Measure:
    return quotient(value(quantity, at(_named(load, factor), OURS)), value(quantity, at(load, ONLINE_ONLY)))


def _largest(loads: Iterable[str], factors: Sequence[float]) -> Measure:
    return largest(*(_over_alone(TTFT, load, factor) for load in loads for factor in factors))


_GROUPS = {
    **{model.split("-")[-1].lower(): (model, list(names.values())) for model, names in fig6a.LOADS.items()},
    "chat": ("BurstGPT's chats, Llama-3.1-8B", [_CHAT]),
    "70b-chat": ("BurstGPT's chats, Llama-3.1-70B", [_70B]),
}
_WITHIN = level((1.0, 1.25), "×", within=0.05)


def _claims(short: str) -> dict[str, Claim]:
    text, loads = _GROUPS[short]
    return {
        f"targets-{short}-1": claim(
            f"(ours) {text}: with 1.0 P99 TTFT would be within 25 % of Online-Only at every rate (largest ratio)",
            _WITHIN,
            _largest(loads, (1.0,)),
            "× {ours:.2f}",
        ),
        f"targets-{short}-1.1": claim(
            f"(ours) {text}: and with every factor from 1.1 to 1.2 (largest ratio)",
            _WITHIN,
            _largest(loads, FACTORS[1:]),
            "× {ours:.2f}",
        ),
    }


CLAIMS = {
    **merged(map(_claims, _GROUPS)),
    "targets-throughput": claim(
        "(ours) the batch has as much with 1.0 as with 1.1 (offline tokens/s, smallest ratio over the loads)",
        level(1.0, "×", within=0.05),
        smallest(
            *(
                quotient(value(TPS, at(_named(x, 1.0), OURS)), value(TPS, at(_named(x, 1.1), OURS)))
                for x in LOADS
            )
        ),
        "× {ours:.2f}",
    ),
}


@picture(TITLE, 1, 3, points=lambda panels: [p for x in LOADS for p in _points(x, panels)], bars=True)
def draw(panels: Panels, paper: Any, *axes: Any) -> str:
    """Ratios to Online-Only, and offline tokens/s over those with 1.0, by the factor; a line for each load."""
    labels = (
        "P99 TTFT over Online-Only's",
        "P99 TBT over Online-Only's",
        "offline tokens/s over those at 1.0",
    )
    for load, look in engine_looks(*LOADS).items():
        measures = {
            own: {f: _over_alone(quantity, load, f) for f in FACTORS}
            for own, quantity in zip(axes, (TTFT, TBT), strict=False)
        }
        first = value(TPS, at(_named(load, 1.0), OURS))
        measures[axes[2]] = {f: quotient(value(TPS, at(_named(load, f), OURS)), first) for f in FACTORS}
        for own, by_factor in measures.items():
            line(own, {f: across_seeds(each(panels)) for f, each in by_factor.items()}, look, load)
    for own, label in zip(axes, labels, strict=True):
        own.set(xlabel="targets over Online-Only's P99", ylabel=label)
    legend(axes[0])
    return f"The other cards have {TARGET:g}. The paper: TTFT within 1.25, TBT within 1.19. {told(every(panels))}"


def _points(load: str, panels: Panels) -> list[Measured]:
    return [point for factor in FACTORS for point in at(_named(load, factor), OURS).points(panels)]
