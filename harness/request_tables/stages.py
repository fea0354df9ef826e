"""The stages through which a reply goes, by their roles: metrics and columns are named after these."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from engines.core.stage import ENTRY
from harness.metrics.former_names import COLUMNS, METRICS

if TYPE_CHECKING:
    import pandas as pd

TALKER, VOCODER = "talker", "vocoder"
"""Stages of replies that are spoken, and their names in the log."""
AR_STAGES = (ENTRY, TALKER)
"""Stages that produce tokens: text tokens where requests come first, codec frames at the talker."""
STAGES = (*AR_STAGES, VOCODER)

WORDS = {ENTRY: "first stage", TALKER: "talker", VOCODER: "vocoder"}
"""Names of stages in definitions."""

_BEFORE = re.compile("_thinker(?=_|$)")


def by_role(table: pd.DataFrame, entry: str) -> pd.DataFrame:
    """Return a table whose column `stage` says `ENTRY` where a log has the deployment's name of that stage."""
    if entry == ENTRY:
        return table
    stages = table["stage"].astype(object)
    return table.assign(stage=stages.where(stages != entry, ENTRY))


def renamed(name: str) -> str:
    """Return the present name of a metric, or of a column of a record's table. In records of version 0.1 the first
    stage is `thinker` in every name (`generated_thinker`, `queueing_thinker_p50`)."""
    request_class, dot, own = name.rpartition(".")
    return f"{request_class}{dot}{_BEFORE.sub(f'_{ENTRY}', METRICS.get(own, COLUMNS.get(own, own)))}"
