"""Benchmark and workload replay for real-time LLM serving.

From Python, `rehearsal.run`, `rehearsal.load` and `rehearsal.trace`, see `rehearsal.api`: loaded when first asked for,
as every module of the program stands below this package and none is to wait for what users call.

The four folders at the top of the repository are linked in here, so that nothing but `rehearsal` is ever installed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rehearsal.api import Place, Results, UserError, load, run, trace

__all__ = ["Place", "Results", "UserError", "load", "run", "trace"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from rehearsal import api

    return getattr(api, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
