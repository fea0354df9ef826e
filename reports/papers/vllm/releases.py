"""What a release of vLLM changed for whom: the same users before the schedulers of three releases."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rehearsal.harness.experiment import Experiment
from rehearsal.reports.figures.picture import LeftOut, Picture
from rehearsal.reports.measured import Run
from rehearsal.reports.papers.metronome.common import DAY_2, QWEN

TITLE = "The same workloads on the schedulers of vLLM 0.31, 0.32 and 0.33"

RELEASES = ["0.31.0", "0.32.0", "0.33.0"]
VOICE, TEXT, CALLS, BESIDE = "voice", "text at saturation", "calls", "co-serving"
_PANELS: dict[str, tuple[list[str], str, dict[str, Any]]] = {
    VOICE: (
        ["vllm_omni", "liveserve"],
        "voice",
        {"deployment": "qwen3_omni_2gpu", "c": 16, "p": 0.3, "sessions": 32, "kv_pool_blocks": 2048},
    ),
    # More than the pool holds: history is evicted, and running requests are preempted.
    TEXT: (
        ["vllm_omni_wo", "vllm_omni"],
        "interactive",
        {
            "deployment": "llama_8b_1gpu",
            "rate": 8.0,
            "sessions": 96,
            "rounds": 3,
            "rounds_shape": 1,
            "opening_tokens": 2000,
            "think_s": 2.0,
            "think_s_per_token": 0,
            "reply_tokens": 400,
            "playback": "none",
            "kv_pool_blocks": 4096,
            "turn_timeout_s": 600.0,
        },
    ),
    # Until the pool is full, and beyond.
    CALLS: (
        ["vllm_realtime", "vllm_realtime_pr49439", "metronome"],
        "metronome",
        {"deployment": QWEN, **DAY_2, "duration_s": 120.0, "sessions": 96, "kv_pool_blocks": 13000},
    ),
    BESIDE: (
        ["sarathi_p", "conserve", "hygen"],
        "co_serving",
        {
            "deployment": "llama_8b_h100",
            "cv": 0.5,
            "rate": 2.0,
            "requests": 80,
            "input_tokens": 4096,
            "output_tokens": 256,
            "pool": 48,
            "ttft_deadline_s": None,
            "tbt_deadline_s": None,
            "turn_timeout_s": 600.0,
            "ttft_slo_s": 0.15,
            "tbt_slo_s": 0.1,
        },
    ),
}
EXPERIMENTS = {
    panel: Experiment(
        name=f"vllm-releases-{panel.replace(' ', '-')}",
        engines=engines,
        workload=workload,
        set=settings,
        grid={"vllm": RELEASES},
        seeds=[0, 1, 2],
        timeout_s=900,
    )
    for panel, (engines, workload, settings) in _PANELS.items()
}
QUICK = {"sessions": "16", "requests": "20", "duration_s": "60"}

PAPER: dict[str, Any] = {}
CLAIMS: list[Any] = []


def draw(panels: Mapping[str, Run], paper: Any) -> Picture | LeftOut:
    return LeftOut("releases", TITLE, "not yet")
