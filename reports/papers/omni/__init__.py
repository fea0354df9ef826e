"""vLLM-Omni itself over modelled GPUs, against our pipeline of it."""

AGAINST = "our pipeline"
"""The numbers that the claims compare the real runtime with."""
