"""One line of the doctor's table."""

import importlib.metadata
from dataclasses import dataclass
from typing import Literal

State = Literal["ok", "missing", "broken", "not needed"]
"""`missing`: something that is not here keeps a device or workload from running. `not needed`: nothing does."""


@dataclass(frozen=True)
class Check:
    """`why` says what was found, or what is wrong and how to mend it."""

    group: Literal["program", "machine", "audio", "live", "data", "devices"]
    what: str
    state: State
    why: str


def version(distribution: str) -> str | None:
    """Returns the version of an installed distribution; None when it is not installed."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None
