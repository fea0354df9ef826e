"""All vocabularies: what a metric of any name means."""

import re

from harness.metrics.classes import CLASS_DEFINITIONS, split
from harness.metrics.definitions import OWN_DEFINITIONS, Definition
from harness.metrics.frames import FRAME_DEFINITIONS
from harness.metrics.jobs import JOB_DEFINITIONS
from harness.metrics.live import LIVE_DEFINITIONS
from harness.metrics.quality import QUALITY_DEFINITIONS
from harness.metrics.turn_taking import TURN_TAKING_DEFINITIONS
from harness.metrics.turns import DEFINITIONS, stage_use_definitions

for _name, _own in (TURN_TAKING_DEFINITIONS | JOB_DEFINITIONS).items():
    if OWN_DEFINITIONS.setdefault(_name, _own) is not _own:
        raise ValueError(f"two metrics are called {_name}")

VOCABULARIES = (OWN_DEFINITIONS, QUALITY_DEFINITIONS, FRAME_DEFINITIONS, DEFINITIONS, LIVE_DEFINITIONS)
"""The vocabularies but that of classes. A name that several have has the meaning of the first."""


def definition(name: str) -> Definition:
    """Return the definition of a metric of any vocabulary, a class's included; KeyError for an unknown name."""
    if of_class := split(name):
        return CLASS_DEFINITIONS[of_class[1]]
    found = next((each[name] for each in VOCABULARIES if name in each), None)
    return _of_other_stage(name) if found is None else found


def _of_other_stage(name: str) -> Definition:
    """Return the definition of a metric of a stage that no spoken reply has, such as `busy_vision`; KeyError."""
    found = re.fullmatch(r"busy_(\w+)|decode_batch_(\w+)_(?:mean|peak)", name)
    if found is None:
        raise KeyError(name)
    return stage_use_definitions(found[1] or found[2])[name]
