"""The mechanisms that a paper names: how each is switched off here, and the test that shows its effect."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Mechanism:
    """One named part of a paper's system; `MECHANISMS` of the module `mechanisms` lists a paper's."""

    name: str
    place: str
    """Section, equation or algorithm of the paper."""
    engine: str = ""
    """The engine that has it, by its name in `rehearse list engines`."""
    off: Mapping[str, Any] = field(default_factory=dict)
    """Settings (`--set`) that switch it off."""
    instead: str = ""
    """The engine to run instead, where another engine and no setting leaves it out."""
    test: str = ""
    """The test that shows its effect, as `tests/FILE.py::NAME`."""
    missing: str = ""
    """The part that is not built; a mechanism has this or all other fields."""

    @property
    def switch(self) -> str:
        """The switch as a user types it."""
        settings = " ".join(
            f"--set {name}={value if isinstance(value, str) else json.dumps(value)}" for name, value in self.off.items()
        )
        return settings or (self.instead and f"engine {self.instead}")
