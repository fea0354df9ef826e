"""Loaded before any test, so torch keeps to the one thread that engines ask for: it reads this once."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
