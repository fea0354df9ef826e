"""Nova: vision, prefill and decode of one agent model side by side on one GPU (arXiv 2509.21301), and its baselines."""

from functools import partial
from typing import Any

from engines.composition import Composition, Scheduler
from engines.systems.nova.nova_params import ChunkParams, PartitionParams, StreamParams, TurnParams
from engines.turns.library import SPEAKING
from workloads.deferred import Deferred


def _sees(scheduler: str) -> dict[str, Any]:
    """Return the settings of a scheduler that runs steps side by side at a stage that sees."""
    return dict(
        kinds=("turns",),
        refusal="it runs the stages of one request one after the other, and a call's frames are of one stage.",
        stage=partial(Deferred("engines.systems.nova.engine:as_shared"), scheduler),
        loop=partial(Deferred("engines.systems.nova.engine:loop"), scheduler),
    )


COMPONENTS = (
    Scheduler(
        "nova",
        "decode concurrent with vision and prefill, on shares of the SMs that follow the load (Alg. 1, eq. 3 and 5)",
        PartitionParams,
        **_sees("nova"),
    ),
    Scheduler("multi_stream", "all three stages at once on plain streams", StreamParams, **_sees("multi_stream")),
    Scheduler(
        "pf_limit", "vision and prefill first, decodes when enough of them wait", TurnParams, **_sees("pf_limit")
    ),
    Scheduler(
        "chunked",
        "vLLM's chunked prefill in small steps",
        ChunkParams,
        kinds=("turns",),
        refusal="it cuts prompts in pieces, and a call's frames are small.",
        policy=Deferred("engines.systems.nova.engine:chunked"),
    ),
)

SYSTEMS = (
    Composition(
        "nova",
        "Nova: vision, prefill and decode side by side on one GPU",
        SPEAKING,
        {"scheduler": "nova"},
        against=("multi_stream", "pf_limit", "chunked"),
    ),
    Composition(
        "multi_stream",
        "Nova's baseline Multi-Stream: all stages on CUDA streams, no shares",
        SPEAKING,
        {"scheduler": "multi_stream"},
    ),
    Composition(
        "pf_limit",
        "Nova's baseline PF-Limit: prefill first, decode when five wait",
        SPEAKING,
        {"scheduler": "pf_limit"},
    ),
    Composition(
        "chunked",
        "Nova's baseline Chunk: vLLM's chunked prefill, 128 tokens a step",
        SPEAKING,
        {"scheduler": "chunked"},
    ),
)
