"""The stages through which a reply goes, by their roles: metrics and columns are named after these."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

ENTRY = "entry"
"""The stage that requests come to first, whatever its name in a deployment."""
TALKER, VOCODER = "talker", "vocoder"
"""Stages of replies that are spoken, and their names in the log."""
AR_STAGES = (ENTRY, TALKER)
"""Stages that produce tokens: text tokens where requests come first, codec frames at the talker."""
STAGES = (*AR_STAGES, VOCODER)

WORDS = {ENTRY: "first stage", TALKER: "talker", VOCODER: "vocoder"}
"""Names of stages in definitions."""


def by_role(table: pd.DataFrame, entry: str) -> pd.DataFrame:
    """Return a table whose column `stage` says `ENTRY` where a log has the deployment's name of that stage."""
    if entry == ENTRY:
        return table
    stages = table["stage"].astype(object)
    return table.assign(stage=stages.where(stages != entry, ENTRY))
