"""How fast workloads, replays and evictions are: `make perf`."""
