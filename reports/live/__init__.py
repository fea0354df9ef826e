"""Live runs and searches: verdicts, and the parts of their records that other runs do not have."""
