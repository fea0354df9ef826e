"""Benchmark and workload replay for real-time LLM serving.

The public API is `rehearsal.run`, `rehearsal.load` and `rehearsal.trace`; see `rehearsal.api`. `rehearsal.Dialect` is
the base of protocols (`rehearsal.dialects`). Each is imported when it is first used, so `import rehearsal` is fast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rehearsal.api import CardResults, Results, UserError, load, run, trace
    from rehearsal.dialects import Dialect

__all__ = ["CardResults", "Dialect", "Results", "UserError", "load", "run", "trace"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module("rehearsal.dialects" if name == "Dialect" else "rehearsal.api"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
