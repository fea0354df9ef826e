"""How a run happens: clock, simulated client, points in fresh workers, records and metrics."""
