"""What happens in a run, as it happens: the event log, and how far a point is."""
