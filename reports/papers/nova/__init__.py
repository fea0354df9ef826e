"""The figures and tables of the Nova paper."""

REFERENCE = "Nova (Xu et al., 2025), arXiv 2509.21301"
