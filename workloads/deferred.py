"""References to what is imported when it is first needed, so that to describe something loads nothing that it runs on.

A list of what there is, a mistyped name or a wrong value then costs milliseconds; `load_all` is for those who measure.
"""

from pkgutil import resolve_name
from typing import Any


class Deferred:
    """Stands for what `at` names, as `package.module:name`; to call it is to load and call that."""

    def __init__(self, at: str) -> None:
        self.at = at
        _ALL.append(self)

    @property
    def module(self) -> str:
        return self.at.partition(":")[0]

    def load(self) -> Any:
        return resolve_name(self.at)

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return self.load()(*arguments, **options)


_ALL: list[Deferred] = []


def load_all() -> None:
    """Import what has been deferred so far: no run is to begin with the imports of another time."""
    for deferred in _ALL:
        deferred.load()
