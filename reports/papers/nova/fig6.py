"""Figs. 6, 8 and 9: shares of decode from profiles: the best (eq. 3), the frontier, what two at once bring."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from reports.figures.drawing import legend, sheet
from reports.figures.picture import LeftOut, Picture
from reports.measured import Measured, Run
from reports.papers.nova.common import OURS, experiment, fixed, profile
from reports.quantities import of, value
from reports.stated import claim, level, times

TITLE = "Figs. 6, 8 and 9: latency and throughput over the shares of decode beside vision and prefill"

ALONE = "alone"
EXPERIMENTS = {ALONE: experiment("alone", [OURS], [0.001], requests=20)}
QUICK = {"requests": "10"}

PAPER = {"vision": 24, "prefill": 30}
OUTPUTS = 50
SOLO = {"vision": 0.8068, "prefill": 0.3241}


def found(stage: str) -> Any:
    """SMs of decode beside a stage, as the run has searched them."""

    def quantity(point: Measured) -> float | None:
        return point.record.counters.get(f"thinker.decode_sms_{stage}")

    return value(quantity, of(ALONE, OURS))


def linear() -> float:
    """Correlation of decode's share, both stages together, with the throughput along the frontier (Fig. 6b)."""
    pairs = profile().frontier(OUTPUTS)
    rates = [profile().throughput(*pair) for pair in pairs]
    return float(np.corrcoef(rates, [sum(pair) for pair in pairs])[0, 1])


def gain(stage: str, sms: int) -> float:
    """Work done side by side over work done in turn, in the same time (Fig. 8)."""
    side = getattr(profile(), stage)
    solo_s = min(each.pass_s for each in side.values()) * _least_slowdown(stage)
    decode_s = min(each.decode_s for each in side.values())
    return solo_s / side[sms].pass_s + decode_s / side[sms].decode_s


def _least_slowdown(stage: str) -> float:
    """The stage alone on all SMs, over its shortest pass beside decode."""
    return SOLO[stage] / min(each.pass_s for each in getattr(profile(), stage).values())


def _gains(stage: str) -> float:
    return float(np.mean([gain(stage, sms) for sms in range(18, 37, 2)]))


CLAIMS = [
    claim(
        "fig6-vision",
        "equation (3) gives decode 24 of 84 SMs beside vision",
        level(24, within=2),
        found("vision"),
        "{ours:.0f}",
    ),
    claim(
        "fig6-prefill",
        "and 30 beside a prefill",
        level(30, within=2),
        found("prefill"),
        "{ours:.0f}: waves of thread blocks make a prefill as fast with 60 SMs left as decode is with 24; 30 is the "
        "second best pair, 0.3 % behind",
    ),
    claim(
        "fig6-linear",
        "along the frontier decode's share falls about linearly with throughput (correlation)",
        level((-1.0, -0.9), words="linear", neutral=0),
        fixed(linear, ALONE),
        "{ours:.2f}",
    ),
    claim(
        "fig8-vision",
        "decode beside vision on 18 to 36 SMs gets more done than in turn",
        times((1.01, 2.0), words="more"),
        fixed(lambda: _gains("vision"), ALONE),
        "× {ours:.2f}",
    ),
    claim(
        "fig8-more",
        "more so than beside a prefill, which moves more",
        times((1.005, 2.0), words="more"),
        fixed(lambda: _gains("vision") / _gains("prefill"), ALONE),
        "× {ours:.3f}",
    ),
    claim(
        "fig4-tbt",
        "on N_min = 12 SMs a decode iteration stays below 80 ms",
        level((0.0289, 0.080), "ms"),
        fixed(lambda: profile().vision[12].decode_s, ALONE),
        "{ms:.0f} ms",
    ),
]


def draw(panels: Mapping[str, Run], paper: Any) -> Picture | LeftOut:
    """All pairs of shares with their frontier, and the times of each stage over decode's share."""
    figure, axes = sheet(1, 2, TITLE)
    ours = profile()
    pairs = [(v, p) for v in ours.vision for p in ours.prefill]
    axes[0].scatter(
        [ours.throughput(*pair) for pair in pairs],
        [ours.end_to_end_s(*pair, OUTPUTS) for pair in pairs],
        s=3,
        color="#8793a3",
    )
    kept = ours.frontier(OUTPUTS)
    rates = [ours.throughput(*pair) for pair in kept]
    axes[0].plot(
        rates,
        [ours.end_to_end_s(*pair, OUTPUTS) for pair in kept],
        color="#d55e00",
        label="frontier",
    )
    axes[0].set_ylim(3.3, 5.0)
    axes[0].set_xlabel("requests per second, equation (4)")
    axes[0].set_ylabel("E[T_e2e], s, equation (1)")
    for stage, colour in (("vision", "#0072b2"), ("prefill", "#009e73")):
        side = getattr(ours, stage)
        axes[1].plot(
            list(side), [each.pass_s for each in side.values()], color=colour, label=f"a pass of {stage}"
        )
        beside = [10 * each.decode_s for each in side.values()]
        axes[1].plot(list(side), beside, color=colour, ls="--", label=f"ten decode iterations beside {stage}")
    axes[1].set_xlabel("SMs of decode, of 84")
    axes[1].set_ylabel("s")
    legend(figure, axes[0], *axes[1].get_legend_handles_labels()[0])
    return Picture("fig6", TITLE, figure, "Modelled; the paper's optimum is (24, 30).")
