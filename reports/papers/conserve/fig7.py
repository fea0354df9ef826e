"""Fig. 7: Llama-3.1-70B beside BurstGPT's chats and mixed documents, over time; the points are Table 2's."""

from reports.papers.conserve.common import *

TITLE = "Fig. 7: Llama-3.1-70B on four H100 beside BurstGPT's chats and mixed documents, over time"

_LIMITS = SLO["70b chat"]
EXPERIMENTS = {
    "mixed: online alone": alone("70b", **LLAMA_70B),
    "mixed: with batch": both("70b mixed", _LIMITS, shape="mixed", **LLAMA_70B),
    "mixed: prefill apart": prefill_apart("70b mixed", shape="mixed", **LLAMA_70B),
}
QUICK = {"requests": "40"}

_WINDOW_S = 10.0
"""[chosen] of the tokens computed."""


def _kept(engine: str) -> Any:
    return value(attained(_LIMITS, 1.0), at("mixed", engine))


def _of_alone(engine: str) -> Any:
    """Requests within both limits, over those of Online-Only, whose own P99s these are."""
    return quotient(_kept(engine), _kept(ONLINE_ONLY))


_OFTEN = ((0.0, 0.5), "frequent violations")

CLAIMS = {
    "fig7-conserve": claim(
        "ConServe meets the limits as consistently as Online-Only, whose P99s they are (requests within both, ratio)",
        level(1.0, "×", within=0.1, words="as consistently"),
        _of_alone(OURS),
        "× {ours:.2f}",
    ),
    **{
        f"fig7-{engine.replace('_', '-')}": claim(
            f"{NAMES[engine]} has frequent violations (requests within both limits over Online-Only's)",
            times(_OFTEN[0], words=_OFTEN[1]),
            _of_alone(engine),
            why,
        )
        for engine, why in (
            (SARATHI, "× {ours:.2f}"),
            (NON_PREEMPTIVE, "× {ours:.2f}"),
            (DISTSERVE, "× {ours:.2f}: decodes that no prompt interrupts keep to any limit of TBT"),
        )
    },
}


def _first(panels: Panels) -> dict[str, Measured]:
    """The first finished run of each engine that has one."""
    found = {engine: finished(at("mixed", engine).points(panels)) for engine in system_looks()}
    return {engine: points[0] for engine, points in found.items() if points}


@picture(TITLE, 3, 1, points=lambda panels: _first(panels).values())
def draw(panels: Panels, paper: Any, *axes: Any) -> str:
    """The first seed: TTFT and P99 time between tokens of each online request, and all tokens computed."""
    from matplotlib.ticker import LogLocator, NullFormatter

    first, looks = _first(panels), system_looks()
    for engine, point in first.items():
        look, name = looks[engine], NAMES[engine]
        online = point.requests.loc[point.requests["request_class"] == "online"]
        dots = {"ls": "none", "marker": look.marker, "color": look.colour, "ms": 3, "label": name}
        for own, column, factor in ((axes[0], "ttft_s", 1), (axes[1], "tbt_p99_s", 1000)):
            own.plot(online["turn_start_s"], factor * online[column], **dots)
        steps = point.record.table("steps")
        counts = np.bincount((steps["t_s"] // _WINDOW_S).astype(int), weights=steps["tokens"])[:-1]
        middle_s = _WINDOW_S * (np.arange(len(counts)) + 0.5)
        axes[2].plot(middle_s, counts / _WINDOW_S / 1000, **look.stroke, label=name)
    for own, limit in ((axes[0], _LIMITS[0]), (axes[1], 1000 * _LIMITS[1])):
        own.axhline(limit, color="tab:red", lw=1)
        own.set_yscale("log")
        own.yaxis.set_major_formatter("{x:g}")
        own.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        own.yaxis.set_minor_formatter(NullFormatter())
    labels = ("TTFT, s", "P99 time between tokens, ms", "tokens computed, 1000/s")
    for own, text in zip(axes, labels, strict=True):
        own.set(ylabel=text, xlabel="time, s")
    axes[2].set_ylim(bottom=0)
    legend(axes[0])
    return (
        "Red: the limits. Three minutes here, ten in the paper; tokens of both classes, those computed again too, "
        f"DistServe-P's on eight GPUs. {told(list(first.values()))}"
    )
