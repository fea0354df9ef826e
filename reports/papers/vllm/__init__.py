"""The effect of vLLM's releases on the same workloads: its own schedulers, one variant each."""

AGAINST = "the release before"
"""Source of the numbers that the claims compare a release's with."""
