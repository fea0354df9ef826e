"""Card `anchors`: the device model against public measurements of stock vLLM-Omni, to which alone it is fitted."""

from harness.experiments.experiment import Experiment
from reports.claims.published import Published

EXPERIMENT = Experiment(
    name="anchors",
    title="The device model against public vLLM-Omni measurements: 16k tokens of input, c requests at once",
    engines=["vllm_omni"],
    workload="poisson",
    set={
        "deployment": "qwen3_omni_2gpu_april",
        "playback": "none",
        "modality": "text",
        "requests": 48,
        "rate": 1000,
        "prompt_tokens": 16000,
        "prompt_sigma": 0,
        "max_prompt_tokens": 16000,
        "reply_sigma": 0.3,
    },
    grid={"c": [1, 4, 8]},
    seeds=[0, 1, 2],
    timeout_s=600,
)
QUICK = {"requests": "16"}

_FITTED = "calibrated: the host times of thinker and talker were fitted to these rows"
_CHECK = "not fitted; reply lengths of the measurement are not published, ours have a median of 60 tokens"


def _measured(quantity: str, c: int, value: float, remark: str) -> Published:
    return Published(
        "vllm-omni PR 2997",
        quantity,
        {"c": c},
        {"vllm_omni": value},
        "vLLM-Omni, Qwen3-Omni, one replica of each stage on H100 or H200",
        remark=remark,
    )


PAPER = [
    _measured("tbt_whole_p50", 1, 0.0045, _FITTED),
    _measured("tbt_whole_p50", 4, 0.0055, _CHECK),
    _measured("tbt_whole_p50", 8, 0.0068, _CHECK),
    _measured("rtf_whole_p50", 1, 0.16, _FITTED),
    _measured("rtf_whole_p50", 4, 0.27, _FITTED),
    _measured("rtf_whole_p50", 8, 0.38, _FITTED),
]
