"""The figures and tables of the Metronome paper."""

REFERENCE = "Metronome (Meng and Li, 2026)"

ORDER_SEED = 0
"""Runs in seeded random order, as the paper's second batch (section 3)."""
