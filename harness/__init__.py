"""A run: clock, simulated client, points in fresh workers, records and metrics."""
