"""The figures and tables of the ConServe paper."""

REFERENCE = "ConServe (Qiao et al., 2024), arXiv 2410.01228"
NAMES = {
    "sarathi_p": "Sarathi-P",
    "non_preemptive": "Non-Preemptive",
    "distserve_p": "DistServe-P",
    "conserve": "ConServe",
}
PAGE = "../../../docs/papers/conserve.md"
