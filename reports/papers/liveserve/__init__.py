"""LiveServe: every figure of its evaluation."""

REFERENCE = "LiveServe (Zhi et al., 2026), arXiv 2606.22983"
