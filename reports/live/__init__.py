"""Live runs and searches: their verdicts, and what their records hold beside the ordinary."""
