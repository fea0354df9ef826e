"""Published measurements of stock vLLM-Omni."""
