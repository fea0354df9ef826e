"""Targets on metrics: whether a load meets them, and the largest load that does."""
