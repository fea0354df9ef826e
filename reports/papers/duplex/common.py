"""The common parts of the cards of open microphones."""

from reports.papers.prelude import *

CALLERS: dict[str, Any] = {"sessions": 64, "rate": 32.0}
"""Everybody has come within two seconds; c of them are on line at once, and who waits takes the place of who ends."""


def duplex(name: str, engines: list[str], settings: Mapping[str, Any], **axes: Any) -> Experiment:
    return experiment(name, engines, "duplex", {**CALLERS, **settings}, **axes)
