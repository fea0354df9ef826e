"""Experiments: the points that are to be measured, and the order in which they run."""
