"""Fig. 7: Llama-3.1-70B under BurstGPT's bursts and mixed documents, over time; the points are Table 2's."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from harness.metrics.requests import ABORTED
from reports.figures.drawing import legend, sheet
from reports.figures.picture import LeftOut, Picture, made_from
from reports.measured import Measured, Run
from reports.papers.conserve.common import (
    LLAMA_70B,
    NON_PREEMPTIVE,
    ONLINE_ONLY,
    OURS,
    SARATHI,
    SLO,
    alone,
    at,
    both,
    looks,
)
from reports.quantities import value
from reports.stated import claim, level

TITLE = "Fig. 7: Llama-3.1-70B on four H100 under BurstGPT's bursts beside mixed documents, over time"

EXPERIMENTS = {
    "mixed: online alone": alone("70b", **LLAMA_70B),
    "mixed: with batch": both("70b mixed", SLO["70b"], shape="mixed", **LLAMA_70B),
}
QUICK = {"requests": "40"}

PAPER = {"meet the SLO": "Online-Only and ConServe consistently, the others not"}
WINDOW_S = 10.0
"""[chosen] about ten requests."""


def kept(point: Measured) -> float | None:
    """Share of the windows in which every online request that came kept to both limits, its times between tokens by
    their mean."""
    requests = point.requests
    own = requests.loc[(requests["request_class"] == "online") & (requests["status"] != ABORTED)]
    if own.empty:
        return None
    within = own["ttft_s"].le(SLO["70b"][0]) & own["tbt_mean_s"].le(SLO["70b"][1])
    return float(within.groupby(own["turn_start_s"] // WINDOW_S).all().mean())


_CONSISTENTLY, _NOT = ((0.85, 1.0), "consistently"), ((0.0, 0.5), "frequent violations")


def _keeps(engine: str, text: str, expected: tuple[tuple[float, float], str], why: str) -> Any:
    return claim(
        f"fig7-{engine.replace('_', '-')}",
        f"{text}: ten-second windows within both limits",
        level(expected[0], "%", words=expected[1]),
        value(kept, at("mixed", engine)),
        why,
    )


CLAIMS = [
    _keeps(ONLINE_ONLY, "Online-Only", _CONSISTENTLY, "{percent:.0f} %, and the limits are its own P99"),
    _keeps(
        OURS,
        "ConServe",
        _CONSISTENTLY,
        "{percent:.0f} %: a prompt that is read in two steps is late",
    ),
    _keeps(SARATHI, "Sarathi-P", _NOT, "{percent:.0f} %: its steps are longer than the limit of TBT"),
    _keeps(NON_PREEMPTIVE, "Non-Preemptive", _NOT, "{percent:.0f} %"),
]


def draw(panels: Mapping[str, Run], paper: Any) -> Picture | LeftOut:
    """The first seed: TTFT and mean time between tokens of each online request, and all tokens computed."""
    figure, axes = sheet(3, 1, TITLE)
    drawn: list[Measured] = []
    for engine, look in looks().items():
        point = next((each for each in at("mixed", engine).points(panels) if each.error is None), None)
        if point is None:
            continue
        drawn.append(point)
        online = point.requests.loc[point.requests["request_class"] == "online"]
        label = "online alone" if engine == ONLINE_ONLY else engine
        for own, column, factor in ((axes[0], "ttft_s", 1), (axes[1], "tbt_mean_s", 1000)):
            own.plot(
                online["turn_start_s"],
                factor * online[column],
                ls="none",
                marker=look.marker,
                color=look.colour,
                ms=3,
                label=label,
            )
        steps = point.record.table("steps")
        counts = np.bincount((steps["t_s"] // WINDOW_S).astype(int), weights=steps["tokens"])[:-1]
        middle_s = WINDOW_S * (np.arange(len(counts)) + 0.5)
        axes[2].plot(middle_s, counts / WINDOW_S / 1000, **look.stroke, label=label)
    if not drawn:
        return LeftOut("fig7", TITLE, "no point of it is finished")
    for own, limit in ((axes[0], SLO["70b"][0]), (axes[1], 1000 * SLO["70b"][1])):
        own.axhline(limit, color="tab:red", lw=1)
    axes[0].set_yscale("log")
    axes[0].yaxis.set_major_formatter("{x:g}")
    labels = ("TTFT, s", "mean time between tokens, ms", "tokens computed, 1000/s")
    for own, text in zip(axes, labels, strict=True):
        own.set_ylabel(text)
        own.set_xlabel("time, s")
    axes[1].set_ylim(bottom=0)
    axes[2].set_ylim(bottom=0)
    legend(figure, axes[0])
    caption = "Red: the limits. Four minutes here, ten in the paper; tokens of both classes, those computed again too."
    return Picture("fig7", TITLE, figure, f"{caption} {made_from(drawn)}")
