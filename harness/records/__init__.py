"""What a point leaves behind: its event log, its record, and what made it."""
