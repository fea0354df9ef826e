"""The vocabulary of the quality probes: whether what was said states the answer to what was asked.

Sources: Metronome section 5.4, Table 2 and Appendix D; specification 2.9.
"""

from harness.metrics.definitions import Definition

_SEGMENT = "output in the segment of a question that states a keyword of it, sessions without output included"
_MID = f"{_SEGMENT}; mode free, segments after the first and before the fresh question (ages 30 to 240 s)"

QUALITY_DEFINITIONS: dict[str, Definition] = {
    "answered_mid_call": Definition("1", "share of sessions that answer the question playing", _MID, "higher"),
    "answered_mid_low": Definition("1", "the same share in the segment where it is lowest", _MID, "higher"),
    "answered_mid_high": Definition("1", "the same share in the segment where it is highest", _MID, "higher"),
    "answered_mid_end": Definition("1", "the same share in the last of these segments", _MID, "higher"),
    "answered_fresh": Definition("1", "share of sessions that answer the fresh question", _SEGMENT, "higher"),
    "answered_recall": Definition(
        "1", "share of sessions whose output to the recall states a keyword of their first question", _SEGMENT, None
    ),
    "answer_stated": Definition(
        "1", "share of sessions that state the answer in some frame", "over sessions; mode turns", "higher"
    ),
    "frames_right": Definition(
        "1", "share of answers to a frame that state a keyword of its question", "over frames answered; mode turns",
        "higher",
    ),
}  # fmt: skip
"""Every metric that `harness.metrics.quality.judge` returns, in its order; those of the other mode are missing."""
