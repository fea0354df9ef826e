"""vLLM-Omni itself over modelled GPUs, beside our pipeline of it."""

AGAINST = "our pipeline"
"""Whose numbers the claims hold those of the real runtime against."""
