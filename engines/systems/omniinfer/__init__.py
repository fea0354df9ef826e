"""OmniInfer (arXiv 2511.22481): expert placement, sink-and-recent attention in some layers, a proxy in front."""

from engines.composition import Attention, Composition, Placement
from engines.systems.omniinfer.library import DIVIDED

COMPONENTS = (
    Placement(
        "balanced", "as if experts stood so that every die got as many tokens: no placement does better"
    ),
    Attention("full", "decode replicas keep all KV and attend to all of it"),
)

SYSTEMS = (
    Composition(
        "omniinfer",
        "OmniInfer: prefill instances, decode dies in lock step, experts divided among them",
        DIVIDED,
        {"routing": "least_load"},
    ),
)
