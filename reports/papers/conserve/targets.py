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
    "chat": ("BurstGPT chats, Llama-3.1-8B", [_CHAT]),
    "70b-chat": ("BurstGPT chats, Llama-3.1-70B", [_70B]),
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
        "(ours) the batch gets as much with 1.0 as with 1.1 (offline tokens/s, smallest ratio over "
        "the loads)",
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


def _by_factor(measure: Callable[[str, float], Measure]) -> dict[str, dict[float, Measure]]:
    return {load: {factor: measure(load, factor) for factor in FACTORS} for load in LOADS}


def _over_first(load: str, factor: float) -> Measure:
    return quotient(value(TPS, at(_named(load, factor), OURS)), value(TPS, at(_named(load, 1.0), OURS)))


_AXES: dict[str, Any] = {"xlabel": "targets over Online-Only's P99", "ylim": (None, None)}
draw = figure(
    TITLE,
    *(
        lines(
            None, _by_factor(partial(_over_alone, metric)), ylabel=f"P99 {name} over Online-Only's", **_AXES
        )
        for metric, name in ((TTFT, "TTFT"), (TBT, "TBT"))
    ),
    lines(None, _by_factor(_over_first), ylabel="offline tokens/s over those at 1.0", **_AXES),
    points=lambda panels: [
        p for x in LOADS for factor in FACTORS for p in at(_named(x, factor), OURS).points(panels)
    ],
    caption=lambda panels: (
        f"The other cards have {TARGET:g}. The paper: TTFT within 1.25, TBT within 1.19. {told(every(panels))}"
    ),
)
