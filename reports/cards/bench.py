"""Card `bench`: LiveServe against stock vLLM-Omni in spoken dialogues, over concurrency and barge-in."""

from collections.abc import Mapping
from typing import Any

from harness.experiments.experiment import Experiment
from reports.claims.published import Published

EXPERIMENT = Experiment(
    name="bench",
    title="LiveServe against vLLM-Omni: c callers, interrupting with probability p",
    engines=["vllm_omni", "liveserve"],
    workload="voice",
    set={"deployment": "qwen3_omni_2gpu"},
    grid={"c": [4, 8, 16], "p": [0.0, 0.3, 0.7]},
    seeds=[0, 1, 2],
    timeout_s=600,
)
QUICK = {"c": "4,16", "p": "0,0.7", "sessions": "40"}
REAL = {"deployment": "speech_tiny", "c": "4", "p": "0,0.7", "sessions": "6", "turns": "2", "reply_tokens": "30"}


def _paper(
    figure: str, quantity: str, setting: Mapping[str, Any], baseline: float, liveserve: float, **more: Any
) -> Published:
    values = {"vllm_omni": baseline, "liveserve": liveserve}
    return Published(figure, quantity, setting, values, "LiveServe, Qwen3-Omni on 8 H200 (4 + 4 replicas)", **more)


_OFFLOAD = "baseline with KV offload"
_EITHER = "of the two baselines, with and without KV offload"
_FROM_HERE = "the default of lead_cap_s was taken from this figure, so this row is fitted, not predicted"

PAPER = [
    _paper("Fig. 11 left", "audio_ttfp_p50", {"c": 8, "p": 0}, 0.86, 0.53),
    _paper("Fig. 11 left", "audio_ttfp_p90", {"c": 8, "p": 0}, 1.38, 0.84),
    _paper("Fig. 11 left", "audio_ttfp_p95", {"c": 8, "p": 0}, 1.45, 0.92),
    _paper("Fig. 11 right", "continuity", {"c": 12, "p": 0}, 0.813, 0.918, remark=_OFFLOAD),
    _paper("Fig. 11 right", "continuity", {"c": 16, "p": 0}, 0.766, 0.875, remark=f"better {_EITHER}"),
    _paper("Fig. 11 right", "continuity", {"c": 16, "p": 0}, 0.703, 0.875, remark=f"worse {_EITHER}"),
    _paper("Fig. 15 right", "generation_span", {}, 8.2, 55.3, remark=f"one long reply; {_FROM_HERE}"),
    _paper("Fig. 15 right", "playback_span", {}, 65.9, 65.9, remark="the same reply"),
    _paper("Fig. 16 left", "wasted_token_ratio", {"p": 0}, 0.0, 0.0),
    _paper("Fig. 16 left", "wasted_token_ratio", {}, 0.4406, 0.1238, largest=True, remark="largest over p"),
]
