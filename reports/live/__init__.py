"""Live runs: verdicts, pictures, and the parts of their records that other runs do not have."""
