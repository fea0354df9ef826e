"""Imported by a fork server of a test, and takes as long as vLLM on a slow day."""

import os
import time
from pathlib import Path

Path(os.environ["SLOW_PRELOAD"]).touch()
time.sleep(3600)
