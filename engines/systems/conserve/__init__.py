"""ConServe: online and offline requests on one engine (arXiv 2410.01228), and the baselines of its section 6."""

from engines.composition import Composition, KvManagement, Scheduler
from engines.systems.conserve.conserve_params import KvParams, OrderParams, QueueParams, SchedulerParams
from engines.turns.library import SPEAKING
from workloads.deferred import Deferred

COMPONENTS = (
    Scheduler(
        "conserve",
        "online requests by predicted time; offline ones use the rest and are preempted mid-step (Alg. 1, 2)",
        OrderParams,
        kinds=("turns",),
        refusal="it tells online from offline requests by priority, and calls have none.",
        reads=SchedulerParams,
        policy=Deferred("engines.systems.conserve.scheduler:policy"),
        stage=Deferred("engines.systems.conserve.scheduler:as_scheduled"),
    ),
    Scheduler(
        "non_preemptive",
        "online requests first in the queue; who has been let in runs to its end",
        QueueParams,
        kinds=("turns",),
        refusal="it tells online from offline requests by priority, and calls have none.",
        policy=Deferred("engines.systems.conserve.scheduler:non_preemptive"),
    ),
    KvManagement(
        "conserve",
        "offline KV copied to the host as it is computed, taken back from the tail, and brought back (section 4.5)",
        KvParams,
        kinds=("turns",),
        refusal="it manages KV of preempted requests, and a call keeps its own until it ends.",
        offloads=True,
        stage=Deferred("engines.systems.conserve.scheduler:with_copies"),
    ),
)

ITERATIONS = {
    "scheduler": "conserve",
    "kv": "conserve",
    "slo_scheduler": False,
    "layer_preemption": False,
    "resume": "recompute",
    "online_reserve": 0.0,
}
"""Parameters of a baseline that decides only between steps, with a fixed budget."""

SYSTEMS = (
    Composition(
        "conserve",
        "ConServe: online requests protected, offline ones in the time and memory that is left",
        SPEAKING,
        {"scheduler": "conserve", "kv": "conserve"},
        against=("sarathi_p", "distserve_p", "non_preemptive"),
    ),
    Composition(
        "sarathi_p",
        "ConServe's baseline Sarathi-P: fixed steps, online first, preemption by recomputation",
        SPEAKING,
        ITERATIONS,
    ),
    Composition(
        "distserve_p",
        "ConServe's baseline DistServe-P: prompts and decodes on replicas of their own, priority on both",
        SPEAKING,
        {**ITERATIONS, "prefill": 1, "decode": 1, "routing": "least_load"},
    ),
    Composition(
        "non_preemptive",
        "ConServe's baseline Non-Preemptive: online requests first in the queue, nobody is ever put back",
        SPEAKING,
        {"scheduler": "non_preemptive", "kv": "conserve", "resume": "recompute"},
    ),
)
