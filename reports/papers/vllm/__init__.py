"""What releases of vLLM do to the same workloads: its own schedulers, one variant each."""

AGAINST = "the release before"
"""Whose numbers those of a release are held against."""
