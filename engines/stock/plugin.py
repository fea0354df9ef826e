"""vLLM's hook for platform plug-ins. Every vLLM process in this environment calls it, so it imports next to nothing."""

import os

SWITCH = "REHEARSAL_MODELLED_PLATFORM"
"""Environment variable that turns the modelled platform on; without it vLLM runs as if Rehearsal were not installed."""

EXECUTOR = "engines.stock.executor.ModelledExecutor"
"""The modelled device, as vLLM's `distributed_executor_backend` names it."""


def platform() -> str | None:
    """The class of the modelled platform if it is asked for, else None."""
    asked = os.environ.get(SWITCH, "0") not in ("", "0")
    return "engines.stock.platform.ModelledPlatform" if asked else None
