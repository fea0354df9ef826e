"""The main reason of failed turns."""

from collections import Counter
from collections.abc import Sequence

import pandas as pd

from harness.records.record import Record
from harness.request_tables.live_window import counted
from harness.request_tables.request_table import FAILED, turn_keys

LATE, SILENT = "no answer in time", "silent"


def main_reason(records: Sequence[Record]) -> str:
    """Return why most of the turns failed that metrics are over, and how many of them where there are other reasons;
    empty where none failed. A turn that no failure is logged of had no answer in time."""
    found: Counter[str] = Counter()
    for record in records:
        if not (record.metrics and record.has("requests") and record.has("failures")):
            continue
        requests = counted(record.table("requests"))
        if "status" not in requests or "turn" not in requests:
            continue
        failed = requests.loc[(requests["status"] == FAILED).to_numpy()]
        failures = record.table("failures").drop_duplicates(["session", "turn"], keep="last")
        reasons = pd.Series(failures["reason"].to_numpy(), turn_keys(failures))
        found.update(reasons.reindex(turn_keys(failed)).fillna(LATE))
        found[SILENT] += int(record.metrics.get("silent_replies", {}).get("value") or 0)
    found = +found
    if not found:
        return ""
    ((reason, count),) = found.most_common(1)
    return reason if len(found) == 1 else f"{count} of them {reason}"
