"""Claims that keep their sign when a calibrated or chosen constant changes."""

from typing import Any

from engines.deployments.changes import write_scale
from reports.claims.sensitivity import Sensitivity, varied
from reports.papers.liveserve import fig11_left, fig14, fig16_left

TITLE = "Sensitivity: calibrated and chosen constants changed one at a time"

_QUARTER = {"+ 25 %": 1.25, "− 25 %": 0.75}


def _scaled(*names: str) -> dict[str, dict[str, Any]]:
    return {
        f"{name} {text}": {"scale": write_scale({name: factor})} for name in names for text, factor in _QUARTER.items()
    }


_MODEL = {
    **_scaled("talker.host_s", "talker.host_s_per_request", "fetch_s", "orchestrator_s"),
    "first packet of 12 frames": {"first_chunk_frames": 12},
    "prompts of 500 tokens": {"prompt_tokens": 500},
    "replies of 60 tokens": {"reply_tokens": 60},
    "c for each pair": {"c_scope": "replica", "requests": 256},
    "routing by least load": {"routing": "least_load", "talker_routing": "least_load"},
}
_POLICY = {
    "lead cap 5 s": {"lead_cap_s": 5.0},
    "lead cap 20 s": {"lead_cap_s": 20.0},
    "talker P_safe 0.5 s": {"talker_safe_s": 0.5},
    "talker P_safe 4 s": {"talker_safe_s": 4.0},
    "thinker P_safe 4 s": {"thinker_safe_s": 4.0},
    "leads always capped": {"pacing": "always"},
    "leads never capped": {"pacing": "never"},
    "text not awaited": {"await_text": False},
    "replies begin while the talker keeps up": {"keep_up": True},
    "U2 yields a share": {"u2_mode": "yielding"},
    "Algorithm 1 alone": {"u2_mode": "work_conserving", "pacing": "never"},
}
_MEMORY = {
    **_scaled("pcie_bandwidth"),
    "pool of 18,432 blocks": {"kv_pool_blocks": 18_432},
    "pool of 36,864 blocks": {"kv_pool_blocks": 36_864},
}

_FEWER = {"requests": 64}
"""Signs need fewer requests than values do."""

_SCHEDULING = {
    "liveserve-fig11-left": (fig11_left.ON_THE_SERVER, fig11_left.CLAIMS),
    "liveserve-fig16-left": (fig16_left.ALL_INTERRUPT, {id: fig16_left.CLAIMS[id] for id in ("fig16-left-everybody",)}),
}
_KV = {
    "liveserve-fig14": (
        {panel: experiment for panel, experiment in fig14.EXPERIMENTS.items() if panel in (fig14.BASE, fig14.FULL)},
        {id: fig14.CLAIMS[id] for id in ("fig14-p90-p0",)},
    )
}

_scheduling, _scheduling_signs = varied(
    _SCHEDULING, {name: _FEWER | changes for name, changes in (_MODEL | _POLICY).items()}, seeds=[0, 1, 2]
)
_memory, _memory_signs = varied(_KV, _MEMORY, seeds=[0, 1, 2])

EXPERIMENTS = _scheduling | _memory
SENSITIVITY = Sensitivity(
    {**_scheduling_signs.panels, **_memory_signs.panels}, {**_scheduling_signs.claims, **_memory_signs.claims}
)
QUICK = {"requests": "64", "stop_after_s": "120"}
