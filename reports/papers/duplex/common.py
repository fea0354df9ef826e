"""The common parts of the cards of open microphones."""

from collections.abc import Mapping
from typing import Any

from harness.experiments.experiment import Experiment
from reports.papers.experiment import experiment

CALLERS: dict[str, Any] = {"sessions": 64, "rate": 32.0}
"""All callers arrive within two seconds; c are connected at once, and the next one follows when a call ends."""


def duplex(name: str, engines: list[str], settings: Mapping[str, Any], **axes: Any) -> Experiment:
    return experiment(name, engines, "duplex", {**CALLERS, **settings}, **axes)
