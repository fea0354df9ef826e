"""Sentences on what was measured otherwise than asked: under the answer in a terminal, and at the head of a report."""

import re
from collections import Counter
from collections.abc import Iterable

from reports.runs.measured import Measured, Run
from reports.runs.policies import totals
from reports.tables.labels import counted
from workloads.statistics.describe import left_out

COUNTED = {
    "truncated_prompts": "Prompts cut to the last tokens that fit max_model_len, as truncate_prompts asks: {:,}.",
    "truncated_talker_prompts": "Prompts of the talker cut to the last tokens that fit its max_model_len: {:,}.",
    "truncated_replies": "Replies cut to what max_model_len or max_tokens leaves: {:,}.",
    "max_len_hits": "Sessions that ended as they reached max_model_len: {:,}.",
}
"""Counters -> their sentences."""


def reasons(points: Iterable[Measured], table: str = "failures") -> Counter[str]:
    """Return the number of failed turns for each reason; a rejected session of a live run is one of them. `table`:
    `rejections` has the turns that admission rejected in replays, which did not fail."""
    tables = [point.record.table(table) for point in points if point.has(table)]
    return Counter(reason for table in tables for reason in table["reason"].astype(str))


def failed_turns(run: Run) -> list[str]:
    """Return a sentence for each reason for which turns failed or were rejected, the most frequent first. A turn that
    no failure is logged of had no answer in time."""
    finished = [point for point in run.points if point.error is None]
    counts = reasons(finished)
    counts["no answer in time"] += int(sum(point.value("failed") or 0 for point in finished)) - counts.total()
    ends = {"failed": +counts, "rejected": reasons(finished, "rejections")}
    return [
        f"{counted(count, 'turn')} {end}: {reason}."
        for end, of_end in ends.items()
        for reason, count in of_end.most_common()
    ]


def notes(run: Run) -> list[str]:
    """Return the sentences; none for a run that was measured as asked."""
    beyond = [run.beyond_sessions] if run.beyond_sessions else []
    counts = totals(run.points)
    says = [text.format(counts[name]) for name, text in COUNTED.items() if counts[name]]
    return [*beyond, *says, *_left_out(run)]


def _left_out(run: Run) -> list[str]:
    """Return what the traces lack of their sources; of alike sentences, such as those of several seeds, the first."""
    records = {point.point.trace_hash: point.record for point in run.points if point.has("trace")}
    alike: dict[str, list[str]] = {}
    for note in dict.fromkeys(note for record in records.values() for note in left_out(record.trace())):
        alike.setdefault(re.sub(r"[\d.,]+", "", note), []).append(note)
    more = {text: f"; alike in {counted(len(each) - 1, 'other trace')}" for text, each in alike.items() if each[1:]}
    return [f"Trace: {each[0]}{more.get(text, '')}." for text, each in alike.items()]
