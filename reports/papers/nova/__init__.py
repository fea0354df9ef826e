"""The figures and tables of the Nova paper."""

from reports.claims.citation import Citation

CITATION = Citation(
    "Nova: Real-Time Agentic Vision-Language Model Serving with Adaptive Cross-Stage Parallelization",
    ("Xu, Yuhang", "Liu, Shengzhong", "Zhang, Dong", "Yan, Bingheng", "Wu, Fan", "Chen, Guihai"),
    year=2025,
    arxiv="2509.21301",
)
