"""Bounds on what anybody may ask for, which several parts share."""

MOST_INTEGER = 2**63 - 1
"""The largest whole number that a table holds."""

MOST_SEED = 2**32 - 1
"""The largest seed: [config] of NumPy's and PyTorch's generators that models are made with."""

MOST_TURNS = 10_000_000
"""Turns of one trace: [chosen] 25 s and 4 GB to make on one core."""
