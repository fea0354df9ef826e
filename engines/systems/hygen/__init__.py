"""HyGen: offline requests in a batch's spare latency (arXiv 2501.14808, NeurIPS 2025; UIUC-MLSys/HyGen)."""

from engines.composition import Composition, Scheduler
from engines.systems.hygen.hygen_params import OrderParams
from engines.turns.library import SPEAKING
from workloads.deferred import Deferred

COMPONENTS = (
    Scheduler(
        "hygen",
        "online requests first, offline ones while the predicted step keeps to a latency budget, by shared prefixes",
        OrderParams,
        kinds=("turns",),
        refusal="it tells online from offline requests by priority, and calls have none.",
        policy=Deferred("engines.systems.hygen.scheduler:policy"),
    ),
)

SYSTEMS = (
    Composition(
        "hygen",
        "HyGen: offline requests within a latency budget of the batch, grouped by common prefix",
        SPEAKING,
        {"scheduler": "hygen", "kv": "conserve", "resume": "swap"},
    ),
)
