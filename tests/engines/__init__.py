"""Importing this first, as pytest does, keeps torch to the one thread that engines ask for: it reads this once."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
