"""Card `bench`: LiveServe against stock vLLM-Omni in spoken dialogues, over concurrency and barge-in."""

from harness.experiment import Experiment

EXPERIMENT = Experiment(
    name="bench",
    title="LiveServe against vLLM-Omni, Qwen3-Omni on two GPUs: c callers, interrupting with probability p",
    engines=["vllm_omni", "liveserve"],
    workload="voice",
    set={"deployment": "qwen3_omni_2gpu"},
    grid={"c": [4, 8, 16], "p": [0.0, 0.3, 0.7]},
    seeds=[0, 1, 2],
    timeout_s=600,
)
QUICK = {"c": "4,16", "p": "0,0.7", "sessions": "24"}
