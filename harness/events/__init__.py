"""The events of a run, as they happen: the event log, and how far a point is."""
