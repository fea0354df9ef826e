"""Workloads that are recorded: logs of requests and traces, played again."""
