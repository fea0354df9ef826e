"""What a trace holds, and how far a fitted generator is from the data that it was fitted to."""
