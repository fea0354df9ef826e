"""OmniInfer (arXiv 2511.22481): expert placement, sink-and-recent attention in some layers, a proxy in front."""

from engines.composition import BY_PROMPT, Attention, Composition, Placement, Routing
from engines.systems.omniinfer.library import DIVIDED
from engines.systems.omniinfer.omniinfer_params import AttentionParams, LoadParams, PlacementParams, ReplicaParams
from engines.systems.omniinfer.proxy.score import LeastWork, OmniProxy, OmniProxyByLoad, OmniProxyOfCode
from workloads.deferred import Deferred

COMPONENTS = (
    Placement("balanced", "as if experts stood so that every die got as many tokens: no placement does better"),
    Placement(
        "sequential",
        "experts in order, without replicas",
        LoadParams,
        attach=Deferred("engines.systems.omniinfer.decode_group:place"),
    ),
    Placement(
        "eplb",
        "vLLM's own balancer",
        ReplicaParams,
        stage=Deferred("engines.systems.omniinfer.decode_group:with_redundant_slots"),
        attach=Deferred("engines.systems.omniinfer.decode_group:place"),
    ),
    Placement(
        "omniplacement",
        "replicas of hot experts where there is least load, followed in service (Algorithms 1, 2)",
        PlacementParams,
        stage=Deferred("engines.systems.omniinfer.decode_group:with_redundant_slots"),
        attach=Deferred("engines.systems.omniinfer.decode_group:place"),
    ),
    Attention("full", "decode replicas keep all KV and attend to all of it"),
    Attention(
        "omniattn",
        "some layers of decode replicas keep first and last tokens only",
        AttentionParams,
        stage=Deferred("engines.systems.omniinfer.decode_group:compressed_decode"),
    ),
    Routing("least_work", "the longest first, each to the least work below the cap (9)", rule=LeastWork, **BY_PROMPT),
    Routing("omniproxy", "where the prefix is, unless there is too much to do (8)", rule=OmniProxy, **BY_PROMPT),
    Routing("omniproxy_load", "the same by load alone", rule=OmniProxyByLoad, **BY_PROMPT),
    Routing("omniproxy_oss", "the same as the published code decides it", rule=OmniProxyOfCode, **BY_PROMPT),
)

SYSTEMS = (
    Composition(
        "omniinfer",
        "OmniInfer: prefill instances, decode dies in lock step, experts divided among them",
        DIVIDED,
        {"routing": "least_load"},
    ),
)
