"""The figures and tables of the Metronome paper."""

ORDER_SEED = 0
"""Runs in seeded random order, as the paper's second batch (section 3)."""
