"""How far virtual time was from real servers, by model and GPU: what `rehearse fidelity --truth` found, as a table."""

from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from harness.truth.run import LATENCIES
from workloads.files.yaml_file import shipped_yaml

NAMES = {"ttft": "TTFT", "itl": "inter-token", "e2e": "E2E"}


@dataclass(frozen=True)
class Known:
    """Mean absolute errors as shares, of loads below saturation; `runs`: what they are of."""

    model: str
    gpu: str
    ttft: float
    itl: float
    e2e: float
    runs: str

    @property
    def sentence(self) -> str:
        errors = ", ".join(f"{NAMES[name]} {100 * getattr(self, name):.1f} %" for name in LATENCIES)
        return f"{errors} ({self.runs})"


@cache
def known() -> tuple[Known, ...]:
    return tuple(Known(**each) for each in shipped_yaml(files("harness.truth") / "known.yaml"))


def known_error(model: str, gpu: str) -> str:
    """What is known of predictions for a model on a GPU, as a sentence."""
    of_gpu = [each for each in known() if each.gpu == gpu]
    for each in of_gpu:
        if each.model == model:
            return f"mean absolute error against real runs, by measured kernels: {each.sentence}"
    if of_gpu:
        others = "; ".join(f"{each.model}: {each.sentence}" for each in of_gpu)
        return f"no real run of {model} on {gpu} was held against it; of others there: {others}"
    return f"no real run on {gpu} was held against it"
