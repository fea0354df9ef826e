"""The figures and tables of the OmniInfer paper."""

REFERENCE = "OmniInfer (Wang et al., 2025), arXiv 2511.22481"
NAMES = {"eplb": "EPLB", "omniplacement": "OmniPlacement", "omniattn": "OmniAttn", "omniinfer": "OmniInfer"}
PAGE = "../../../docs/papers/omniinfer.md"
