"""Statistics of a trace, and how far a fitted generator is from the data that it was fitted to."""
