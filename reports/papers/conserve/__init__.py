"""The figures and tables of the ConServe paper."""

REFERENCE = "ConServe (Qiao et al., 2024), arXiv 2410.01228"
