"""The figures and tables of the Nova paper."""

REFERENCE = "Nova (Xu et al., 2025), arXiv 2509.21301"
NAMES = {"pf_limit": "PF-Limit", "chunked": "Chunk", "multi_stream": "Multi-Stream", "nova": "Nova"}
PAGE = "../../../docs/papers/nova.md"
