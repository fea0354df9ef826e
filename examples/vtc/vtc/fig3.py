"""Fig. 3: two clients that both ask for more than their share, at 90 and 180 requests per minute."""

import numpy as np
import pandas as pd

from reports.claims.bands import of_model
from reports.claims.quantities import of, ratio, value
from reports.claims.stated import at_least, claim, same, times
from reports.figures.forms import bars, figure, over_time
from reports.papers.experiment import experiment
from reports.runs.measured import Measured
from vtc.metrics import READS, served

TITLE = "Fig. 3: service of two clients that overload the server, 90 and 180 requests per minute"

SERVER = {
    "deployment": "llama_8b_1gpu",
    "model": "llama_2_7b",
    "gpu": "a10g",
    "kv_pool_blocks": 625,
    "minutes": 2,
    "turn_timeout_s": 3600,
}
EXPERIMENTS = {"clients": experiment("clients", ["vllm_omni_wo", "vtc"], "clients", SERVER)}
QUICK = {"minutes": "1"}

FCFS, VTC = of("clients", "vllm_omni_wo"), of("clients", "vtc")
CLIENTS = ("light", "heavy")
PAPER = {"fcfs": 180 / 90, "vtc": 1.0}
CHOSEN = "minutes and turn_timeout_s were set after a run of five minutes in which requests timed out"
BAND = of_model(0.05, "[chosen] the paper shows curves and prints no number")


def unfairness(point: Measured) -> float | None:
    """Service of the heavy client over that of the light one."""
    light, heavy = (point.value(f"{client}.service") for client in CLIENTS)
    return None if light is None or heavy is None else heavy / light


def gap(point: Measured) -> tuple[np.ndarray, np.ndarray]:
    """Difference of what the clients have been served, after each second."""
    came = served(point.kinds(*READS), pd.DataFrame(point.record.trace().columns()))
    tokens = came["tokens"].where(came["tenant"] == "heavy", -came["tokens"])
    by_second = np.bincount(came["t"].astype(int), tokens)
    return np.arange(1, len(by_second) + 1), np.abs(np.cumsum(by_second))


CLAIMS = {
    "fig3-fcfs": claim(
        "first come, first served gives clients service in proportion to their rates (heavy over light)",
        times(PAPER["fcfs"], within=BAND),
        value(unfairness, FCFS),
        chosen=CHOSEN,
        source="the rates",
    ),
    "fig3-vtc": claim(
        "VTC gives clients that wait the same service (heavy over light)",
        same(within=BAND),
        value(unfairness, VTC),
        chosen=CHOSEN,
        source="from memory",
    ),
    "fig3-throughput": claim(
        "VTC loses no throughput (over first come, first served)",
        at_least(1, within=BAND, words="work-conserving"),
        ratio("service", VTC, to=FCFS),
    ),
}

draw = figure(
    TITLE,
    bars(
        None,
        {
            client: {name: value(f"{client}.service", at) for name, at in (("FCFS", FCFS), ("VTC", VTC))}
            for client in CLIENTS
        },
        ylabel="service, weighted tokens/s",
    ),
    over_time(gap, {"vllm_omni_wo": FCFS, "vtc": VTC}, ylabel="difference of service, weighted tokens"),
    caption="Both clients always have requests that wait.",
)
