"""The figures and tables of the OmniInfer paper."""

REFERENCE = "OmniInfer (Wang et al., 2025), arXiv 2511.22481"
