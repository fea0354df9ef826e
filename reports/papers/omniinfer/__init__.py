"""The figures and tables of the OmniInfer paper."""

from reports.claims.citation import Citation

CITATION = Citation(
    "OmniInfer: System-Wide Acceleration Techniques for Optimizing LLM Serving Throughput and Latency",
    (
        "Wang, Jun",
        "Yao, Yunxiang",
        "Kuang, Wenwei",
        "Mao, Runze",
        "Sun, Zhenhao",
        "Tao, Zhuang",
        "Zhang, Ziyang",
        "Li, Dengyu",
        "Chen, Jiajun",
        "Wang, Zhili",
        "Cui, Kai",
        "Cai, Congzhi",
        "Lan, Longwen",
        "Zhang, Ken",
    ),
    year=2025,
    arxiv="2511.22481",
)
