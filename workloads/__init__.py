"""Workloads: what the users do, as traces that no engine can change. Nothing here imports an engine."""
