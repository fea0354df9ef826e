"""How fast workloads and replays are: `make perf`."""
