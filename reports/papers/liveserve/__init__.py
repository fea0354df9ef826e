"""LiveServe: every figure of its evaluation."""

from reports.claims.citation import Citation

CITATION = Citation(
    "LiveServe: Interaction-Aware Serving for Real-Time Omni-Modal LLMs",
    ("Zhi, Xiangyu", "Yin, Peiqi", "Guan, Sheng", "Zheng, Chenguang", "Cheng, James", "Yan, Xiao"),
    year=2026,
    arxiv="2606.22983",
)
