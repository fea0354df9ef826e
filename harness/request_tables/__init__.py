"""From the event log to one row per turn or per frame: a record stores them, and metrics are made of them."""
