"""What is published about stock vLLM-Omni."""
