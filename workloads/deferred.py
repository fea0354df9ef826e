"""References that are imported when first needed, so that describing a thing does not load what it runs on.

A list of names, a mistyped name or a wrong value then costs milliseconds; `load_all` is for measurements.
"""

from pkgutil import resolve_name
from typing import Any


class Deferred:
    """A reference to `at`, written `package.module:name`; calling it loads and calls that. `loaded`: whether `load_all`
    imports it."""

    def __init__(self, at: str, loaded: bool = True) -> None:
        self.at = at
        if loaded:
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
