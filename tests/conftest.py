"""Loaded before any test, so torch keeps to the one thread that engines ask for: it reads this once."""

import os
import signal

os.environ.setdefault("OMP_NUM_THREADS", "1")
# A shell that runs the suite in the background has it ignore Ctrl-C, and so would all that it starts.
signal.signal(signal.SIGINT, signal.default_int_handler)
