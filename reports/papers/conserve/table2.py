"""Table 2: Llama-3.1-70B on four H100 under BurstGPT's bursts, four sets of documents."""

from collections.abc import Mapping
from typing import Any

from reports.figures.picture import LeftOut, Picture
from reports.measured import Run
from reports.papers.conserve.common import (
    LLAMA_70B,
    NON_PREEMPTIVE,
    ONLINE_ONLY,
    OURS,
    SARATHI,
    SLO,
    TBT,
    TPS,
    TTFT,
    against,
    alone,
    at,
    both,
    drawn,
    slo_check,
)
from reports.quantities import average, quotient, value
from reports.stated import claim, level, times

TITLE = "Table 2: Llama-3.1-70B on four H100 under BurstGPT's bursts, four sets of documents"

SHAPES = ("mixed", "dureader", "multinews", "vcsum")
EXPERIMENTS = {"all: online alone": alone("70b", **LLAMA_70B)} | {
    f"{shape}: with batch": both(f"70b {shape}", SLO["70b"], shape=shape, **LLAMA_70B) for shape in SHAPES
}
QUICK = {"requests": "40"}

PAPER = {
    "mixed": {
        "ttft": (1.08, 15.2, 2.91, 1.14),
        "tbt": (0.184, 0.450, 0.441, 0.201),
        "tps": (1995, 895, 1553),
    },
    "dureader": {
        "ttft": (1.08, 38.7, 2.98, 1.67),
        "tbt": (0.184, 0.659, 0.400, 0.204),
        "tps": (1276, 715, 1187),
    },
    "multinews": {
        "ttft": (1.08, 11.0, 2.11, 1.04),
        "tbt": (0.184, 0.305, 0.212, 0.194),
        "tps": (2765, 1698, 2281),
    },
    "vcsum": {
        "ttft": (1.08, 46.2, 3.01, 1.68),
        "tbt": (0.184, 0.566, 0.453, 0.208),
        "tps": (1218, 255, 1064),
    },
}
"""Online-Only, Non-Preemptive, Sarathi-P, ConServe, in s; offline tokens/s without the first."""

_ALONE = at("all", ONLINE_ONLY)


def _over_alone(quantity: str, shape: str, engine: str) -> Any:
    return quotient(value(quantity, at(shape, engine)), value(quantity, _ALONE))


def _of_shape(shape: str) -> list[Any]:
    paper = PAPER[shape]
    ttft, tbt, tps = paper["ttft"], paper["tbt"], paper["tps"]
    return [
        claim(
            f"table2-{shape}-ttft",
            f"{shape}: P99 TTFT {ttft[3]:g} s, × {ttft[3] / ttft[0]:.2f} of Online-Only",
            level(ttft[3] / ttft[0], "×", within=0.25),
            _over_alone(TTFT, shape, OURS),
            "× {ours:.2f}: steps are bounded by t_TBT however long the documents are, so that the sets look alike",
        ),
        claim(
            f"table2-{shape}-tbt",
            f"{shape}: P99 TBT {1000 * tbt[3]:g} ms, × {tbt[3] / tbt[0]:.2f} of Online-Only",
            level(tbt[3] / tbt[0], "×", within=0.12),
            _over_alone(TBT, shape, OURS),
            "× {ours:.2f}",
        ),
        claim(
            f"table2-{shape}-optimal",
            f"{shape}: {100 * tps[2] / tps[0]:.0f} % of Non-Preemptive's throughput",
            level(tps[2] / tps[0], "%", within=0.1),
            against(TPS, shape, OURS, NON_PREEMPTIVE),
            "{percent:.0f} %: nothing is recomputed",
        ),
        claim(
            f"table2-{shape}-sarathi",
            f"{shape}: × {tps[2] / tps[1]:.2f} of Sarathi-P's throughput",
            times(tps[2] / tps[1], within=0.25 * (tps[2] / tps[1] - 1)),
            against(TPS, shape, OURS, SARATHI),
            "× {ours:.2f}: what Sarathi-P loses hangs on how long documents are, and less here",
        ),
    ]


CLAIMS = [
    claim(
        "table2-alone-ttft",
        "Online-Only: P99 TTFT 1.08 s",
        level(1.08, "s", within=0.15),
        value(TTFT, _ALONE),
        "{ours:.2f} s",
        calibrated="the rate was chosen near it",
    ),
    claim(
        "table2-alone-tbt",
        "Online-Only: P99 TBT 184 ms",
        level(0.184, "ms", within=0.03),
        value(TBT, _ALONE),
        "{ms:.0f} ms: a step with one or two prompts; their kernels are not ours",
    ),
    claim(
        "table2-sarathi-ttft",
        "Sarathi-P: P99 TTFT × 2.7 of Online-Only on average",
        times((1.95, 2.79), within=0.3),
        average(*(_over_alone(TTFT, shape, SARATHI) for shape in SHAPES)),
        "× {ours:.2f}",
    ),
    claim(
        "table2-non-preemptive-ttft",
        "Non-Preemptive: P99 TTFT 10 to 43 × of Online-Only (mean)",
        times((10.2, 42.8), within=2.0),
        average(*(_over_alone(TTFT, shape, NON_PREEMPTIVE) for shape in SHAPES)),
        "× {ours:.2f}: an online request waits until documents have ended that hold the pool",
    ),
    *(each for shape in SHAPES for each in _of_shape(shape)),
    *slo_check("all", SLO["70b"]),
]


def draw(panels: Mapping[str, Run], paper: Any) -> Picture | LeftOut:
    """The four sets side by side."""
    caption = "1 mixed, 2 DuReader, 3 MultiNews, 4 VCSUM."
    return drawn("table2", TITLE, "set of documents", dict(enumerate(SHAPES, 1)), panels, caption)
