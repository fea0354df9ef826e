"""LiveServe: every figure of its evaluation."""

REFERENCE = "LiveServe (Zhi et al., 2026), arXiv 2606.22983"
NAMES = {"vllm_omni_wo": "vLLM-Omni-wo", "vllm_omni": "vLLM-Omni", "liveserve": "LiveServe"}
COLOURS = {"vllm_omni_wo": "#a08a5b", "vllm_omni": "#6f87a6", "liveserve": "#d55e00"}
PAGE = "../../../docs/papers/liveserve.md"
