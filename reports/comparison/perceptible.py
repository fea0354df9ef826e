"""The least difference of a metric that a person would notice, next to the ratio that a comparison asks for.

Waits: interfaces count as instantaneous up to 100 ms (Nielsen, Usability Engineering, 1993, chapter 5); half of that is
taken for the least difference of two waits. Pauses: a gap counts from 100 ms on (`harness.request_tables.playback`); a
fifth of that is taken. Tokens: people read no faster than 50 a second, 20 ms each; a quarter of that is taken. The
fractions are [chosen]. Shares: one point, and more than one turn, because a single reply is chance. Counts: more than
one. Rates and times of whole runs have no such limit: there the ratio decides.
"""

import re

from harness.metrics.metric_name import parsed
from harness.metrics.vocabulary import definition

WAIT_S, PAUSE_S, TOKEN_S = 0.050, 0.020, 0.005
LEAST_S = {
    r"audio_ttfp|ttft|e2e|end_of_turn(_delay)?|answer|respond|stop(_server|_report)?|queueing_.*|reload": WAIT_S,
    r"max_gap|talk_over": PAUSE_S,
    r"tbt|itl": TOKEN_S,
}
"""Pattern of quantities -> least difference, s."""
POINT = 0.01


def least_difference(metric: str, n: int | None) -> float:
    """Return the least difference of two values of a metric that counts, in its own unit; 0: the ratio alone decides.
    `n`: turns, replies or events behind the value of the run with the fewest."""
    name, meaning = parsed(metric).quantity, definition(metric)
    if meaning.share:
        return max(POINT, 1.5 / n) if n else POINT
    for pattern, least_s in LEAST_S.items():
        if re.fullmatch(pattern, name):
            return least_s
    counts = meaning.unit == "1" and name in ("failed", "unfinished", "shed", "silent_replies")
    return 1.5 if counts else 0.0
