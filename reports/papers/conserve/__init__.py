"""The figures and tables of the ConServe paper."""

from reports.claims.citation import Citation

CITATION = Citation(
    "ConServe: Fine-Grained GPU Harvesting for LLM Online and Offline Co-Serving",
    (
        "Qiao, Yifan",
        "Yu, Shan",
        "Anzai, Shu",
        "Ma, Haoran",
        "Yang, Shuo",
        "Wang, Yang",
        "Kim, Miryung",
        "Wu, Yongji",
        "Zhou, Yang",
        "Xing, Jiarong",
        "Gonzalez, Joseph E.",
        "Stoica, Ion",
        "Xu, Harry",
    ),
    year=2024,
    arxiv="2410.01228",
)
