"""Claims that keep their sign when a constant behind the cards changes by a quarter."""

from collections.abc import Mapping

from harness.experiments.experiment import Experiment
from reports.claims.sensitivity import varied
from reports.papers.conserve import fig3, fig9
from reports.papers.conserve.systems import NON_PREEMPTIVE, ONLINE_ONLY, OURS, SARATHI

TITLE = "Sensitivity: calibrated and chosen constants changed one at a time"

_QUARTER = {"+ 25 %": 1.25, "− 25 %": 0.75}
_SCALED = {
    f"{name} {text}": {"scale": f"{name}={factor}"}
    for name in ("flops", "bandwidth", "pcie_bandwidth")
    for text, factor in _QUARTER.items()
}
_CHOSEN = {"three quarters of the KV pool": {"kv_pool_blocks": 21_400}}


def _only(experiments: Mapping[str, Experiment], engines: list[str]) -> dict[str, Experiment]:
    """Return the experiment with only the engines and loads of the claims."""
    kept = {panel: [e for e in experiment.engines if e in engines] for panel, experiment in experiments.items()}
    return {
        panel: experiment.model_copy(update={"engines": kept[panel]})
        for panel, experiment in experiments.items()
        if kept[panel] and not panel.startswith(("chat 4", "chat 6", "chat 5, ", "by chunk"))
    }


EXPERIMENTS, SENSITIVITY = varied(
    {
        "conserve-fig3": (_only(fig3.EXPERIMENTS, [ONLINE_ONLY, NON_PREEMPTIVE, SARATHI]), fig3.CLAIMS),
        "conserve-fig9": (_only(fig9.EXPERIMENTS, [ONLINE_ONLY, SARATHI, OURS]), fig9.CLAIMS),
    },
    {name: {"requests": 120} | changes for name, changes in (_SCALED | _CHOSEN).items()},
)
QUICK = {"requests": "12"}
