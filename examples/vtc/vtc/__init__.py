"""The first figure of VTC: clients are served alike, whatever they ask for."""

REFERENCE = "VTC (Sheng et al., OSDI 2024), arXiv 2401.00588"
NAMES = {"vtc": "VTC", "vllm_omni_wo": "FCFS"}
COLOURS = {"vtc": "#0072b2"}
