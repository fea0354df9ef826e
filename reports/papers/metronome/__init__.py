"""The figures and tables of the Metronome paper."""

REFERENCE = "Metronome (Meng and Li, 2026)"

ORDER_SEED = 0
"""Runs in seeded random order, as the paper's second batch (section 3)."""
NAMES = {"vllm_realtime": "vLLM-realtime", "vllm_realtime_pr49439": "vLLM PR 49439", "metronome": "Metronome"}
COLOURS = {
    "vllm_realtime": "#6f87a6",
    "vllm_realtime_pr49439": "#0072b2",
    "recycling": "#cc79a7",
    "metronome": "#d55e00",
}
PAGE = "../../../docs/papers/metronome.md"
