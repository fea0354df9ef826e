"""How fast replays are: `make perf`."""
