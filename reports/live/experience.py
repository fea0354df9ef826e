"""A voice report under the headings of ITU-T P.804 (10/2017): listening, speaking, and interacting.

P.804 has people rate each of these phases of a conversation apart. The measurements are grouped by the phase in which
a caller would notice them; they are not ratings, and there is no overall score.

Waiting is compared with people and with the limits of telephone networks. People answer each other after 0.2 s in the
median (Stivers et al., PNAS 106, 2009). A delay T each way adds 2 T to every pause that a caller hears. So a gap g is
heard as a person who answers after 0.2 s over a line with a one-way delay of (g - 0.2 s) / 2: one mapping, by which
ITU-T G.114 (05/2003) can be read. G.114 holds that most uses are not affected by up to 150 ms, and that networks
should not be planned for more than 400 ms.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from harness.metrics.metric import percentile
from harness.slo.targets import turn_values
from reports.runs.measured import Measured, Run, by_seed
from reports.tables.columns import MISSING, Column
from reports.tables.labels import short

HUMAN_GAP_S = 0.2
"""[config: Stivers et al. 2009, of ten languages: medians from 0 to 0.3 s, most near 0.2 s]"""
LONG_GAP_S = 0.8
"""Beyond which builders of voice agents find that callers notice. [chosen: as in `harness.live.live_slo`]"""
G114_S = (0.150, 0.400)
"""One-way delay: transparent up to the first, not to be planned for beyond the second. [config: ITU-T G.114]"""


@dataclass(frozen=True)
class Gaps:
    """Gaps from the ends of turns to the first sounds of answers, s, over `n` turns; infinite for a turn that failed or
    got no answer."""

    n: int
    p50_s: float | None
    p90_s: float | None
    p95_s: float | None
    long: float | None
    within: tuple[float | None, float | None]
    """Shares of turns whose equivalent one-way delay is up to each of `G114_S`."""

    @property
    def delay_p50_s(self) -> float | None:
        """The median as a one-way delay; below 0 for an agent faster than people."""
        return None if self.p50_s is None else one_way_delay(self.p50_s)


def one_way_delay(gap_s: float) -> float:
    """The mapping of this module, s."""
    return (gap_s - HUMAN_GAP_S) / 2


def gaps(requests: pd.DataFrame) -> Gaps:
    """Returns the gaps in a request table of turns, or of calls on open microphones."""
    name = "end_of_turn_delay_p50" if "end_of_turn_delay_s" in requests else "audio_ttfp_p50"
    found = turn_values(name, requests)
    assert found is not None, "a percentile over turns"
    p50_s, p90_s, p95_s = (percentile(found, p) if found.size else None for p in (50, 90, 95))

    def share(upto_s: float) -> float | None:
        return float((found <= upto_s + 1e-9).mean()) if found.size else None

    within = [share(HUMAN_GAP_S + 2 * delay_s) for delay_s in G114_S]
    short = share(LONG_GAP_S)
    long = None if short is None else 1 - short
    return Gaps(found.size, p50_s, p90_s, p95_s, long, (within[0], within[1]))


LISTENING = (
    Column("continuity", "no pause > 100 ms", "% of replies", 100, 1),
    Column("continuity_250ms", "no pause > 250 ms", "% of replies", 100, 1),
    Column("continuity_500ms", "no pause > 500 ms", "% of replies", 100, 1),
    Column("max_gap_p50", "longest pause P50", "ms", 1000, 0),
    Column("max_gap_p90", "longest pause P90", "ms", 1000, 0),
    Column("rtf_gen_p50", "RTF P50", "without TTFP", 1, 2),
)
SPEAKING = (
    Column("cut_in", "cut in on", "% of turns", 100, 1),
    Column("takeover", "taken over in a hesitation", "% of those", 100, 1),
    Column("talk_over_share", "talked over", "% of speech", 100, 1),
    Column("interruption_recall", "interruptions heeded", "%", 100, 1),
    Column("stop_p50", "silent after P50", "ms", 1000, 0),
    Column("false_interruption", "silenced by nothing", "%", 100, 1),
)
GAP_HEADINGS = (
    ("gap P50", "ms"),
    ("gap P90", "ms"),
    ("gap P95", "ms"),
    (f"above {1e3 * LONG_GAP_S:.0f} ms", "% of turns"),
    ("as one-way delay, P50", "ms"),
    (f"within {1e3 * G114_S[0]:.0f} ms", "% of turns"),
    (f"within {1e3 * G114_S[1]:.0f} ms", "% of turns"),
    ("n", "turns"),
)
NOTES = {
    "listening": "While the agent speaks: whether its speech goes on. How it sounds is not judged.",
    "speaking": "While the caller speaks: whether the agent lets them. A dash means no such event.",
    "interacting": (
        "From one to the other. As one-way delay: a gap is heard as a person who answers after "
        f"{1e3 * HUMAN_GAP_S:.0f} ms, as people do (Stivers et al., PNAS 106, 2009), over a line that "
        "delays by half of the rest each way; below 0: the agent is faster than people. ITU-T G.114 "
        "(05/2003) finds most uses unaffected up to 150 ms, and wants no network planned for more "
        "than 400 ms. A turn that failed or got no answer counts as beyond both. This is the only mapping; there is no "
        "score."
    ),
}
SOURCE = "ITU-T P.804 (10/2017), Subjective diagnostic test method for conversational speech quality analysis"


Phase = dict[str, Any]
"""Name, note, headings with units, and rows of texts after axes and variant."""


def experience(run: Run) -> dict[str, Any] | None:
    """Return the phases of a run with spoken replies; none for other runs."""
    groups = _groups(run)
    spoken = ("audio_ttfp_p50", "end_of_turn_delay_p50")
    if all(point.value(name) is None for _, points in groups for point in points for name in spoken):
        return None
    gap_rows = [{**who, "texts": _gap_texts(points)} for who, points in groups]
    phases = [
        _measured("listening", LISTENING, groups),
        _measured("speaking", SPEAKING, groups),
        _phase("interacting", GAP_HEADINGS, gap_rows),
    ]
    return {"phases": [phase for phase in phases if phase is not None], "source": SOURCE}


def _phase(name: str, headings: Sequence[tuple[str, str]], rows: Sequence[dict[str, Any]]) -> Phase:
    return {"name": name, "note": NOTES[name], "headings": headings, "rows": rows}


def _groups(run: Run) -> list[tuple[dict[str, Any], list[Measured]]]:
    return [
        ({"cell": [short(value) for _, value in cell], "variant": index}, points)
        for cell in run.cells
        for index, variant in enumerate(run.variants)
        if (points := [point for point in run.at(variant, cell) if point.error is None])
    ]


def _measured(
    name: str, known: Sequence[Column], groups: Sequence[tuple[dict[str, Any], list[Measured]]]
) -> Phase | None:
    """Return the columns that some point has a value for; None where no column has one."""
    columns = [
        column
        for column in known
        if any(point.value(column.metric) is not None for _, points in groups for point in points)
    ]
    if not columns:
        return None
    rows = [
        {**who, "texts": [column.over(by_seed(points, column.metric))[0] for column in columns]}
        for who, points in groups
    ]
    return _phase(name, [(column.heading, column.unit) for column in columns], rows)


def _gap_texts(points: Sequence[Measured]) -> list[str]:
    tables = [point.requests for point in points if point.has("requests")]
    found = gaps(pd.concat(tables, ignore_index=True)) if tables else None
    if found is None or not found.n:
        return [MISSING] * len(GAP_HEADINGS)
    return texts(found)


def texts(found: Gaps) -> list[str]:
    times = [found.p50_s, found.p90_s, found.p95_s]
    shares = [found.long, *found.within]
    said = [MISSING if share is None else f"{100 * share:.1f}" for share in shares]
    delay = MISSING
    if found.delay_p50_s is not None:
        delay = "below 0" if found.delay_p50_s < 0 else _ms(found.delay_p50_s)
    return [
        *(MISSING if t is None else _ms(t) for t in times),
        said[0],
        delay,
        *said[1:],
        f"{found.n:,}",
    ]


def _ms(time_s: float) -> str:
    return f"{1e3 * time_s:,.0f}" if math.isfinite(time_s) else "∞"
