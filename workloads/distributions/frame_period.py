"""Metronome's shares of the frame period."""

WAIT_CAP = 0.8
"""Longest wait of a tick, share of the frame period [paper: Metronome, section 3]."""
TARGET_SHARE = 0.3
"""Latency of a frame that is aimed at, share of the period: 0.6 s of 2 s [paper: Metronome, Fig. 7]."""
