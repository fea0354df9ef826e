"""The figures and tables of the Metronome paper."""

from reports.claims.citation import Citation

ORDER_SEED = 0
"""Runs in seeded random order, as the paper's second batch (section 3)."""

CITATION = Citation(
    "Metronome: Bound the Cache, Keep the Beat for Real-Time Interaction Model Serving",
    ("Meng, Jiaying", "Li, Bojie"),
    year=2026,
)
