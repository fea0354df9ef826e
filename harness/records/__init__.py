"""The output of a point: its event log, its record, and its provenance."""
