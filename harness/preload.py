"""Imported once by the fork server: vLLM, and the configuration caches that its first use fills.

Workers are forked from here with all of that in memory, and with no engine, request or thread of an engine: a
fresh process is ready in milliseconds instead of ten seconds.
"""

import gc
import os
import signal

# Ctrl-C reaches the whole terminal group. The command answers it; the server ends with the command.
signal.signal(signal.SIGINT, signal.SIG_IGN)
# Threads do not survive a fork, so none may start here.
os.environ.setdefault("OMP_NUM_THREADS", "1")

from engines.core.vllm_adapter import warm  # noqa: E402

warm()
gc.collect()
gc.freeze()  # what is loaded by now is shared by all workers; no collection touches, and so copies, its pages
