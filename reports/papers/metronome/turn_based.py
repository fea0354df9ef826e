"""Section 5.4 and Appendix D, turn-based decoding: the window alone costs no quality."""

from reports.claims.bands import of_share
from reports.claims.quantities import of, value
from reports.claims.stated import claim, level
from reports.papers.metronome import probe
from reports.papers.metronome.calls import BASELINE, OURS

TITLE = "Section 5.4: answers in turn-based decoding, unbounded and windowed (N = 96, 75 s)"

NEEDS, GIVE = probe.NEEDS, probe.GIVE

CALL = "turns"
SESSIONS = 96  # all frames of a session ask one question
EXPERIMENTS = {
    CALL: probe.probe(
        "turn-based",
        [BASELINE, OURS],
        mode="turns",
        sessions=SESSIONS,
        segments=1,
        segment_s=75.0,
        tokens_per_frame=64,  # [chosen] room for a sentence; an answer ends itself
        template_tokens=21,  # [derived] a user's opening, the instruction and the assistant's: 5 + 11 + 5
        window=1024,
    )
}
QUICK = {"sessions": "4", "segment_s": "10"}

PAPER = {BASELINE: (1.0, 0.70), OURS: (1.0, 0.68)}
"""Engine -> share of sessions that state the answer, 96 of 96, and of frames that are right."""

_QUANTITIES = {
    "answer_stated": (
        "sessions that state the answer to their question (96 of 96)",
        "App. D: 96 of 96 sessions state it",
    ),
    "frames_right": ("frames whose answer is right", "App. D: about 70 and 68 % of frames are right"),
}

CLAIMS = {
    f"turn-based-{quantity.replace('_', '-')}-{engine}": claim(
        f"{engine}: {what}",
        level(paper, "%", within=of_share(paper, SESSIONS)),
        value(quantity, of(CALL, engine)),
        fact=fact,
    )
    for engine, numbers in PAPER.items()
    for (quantity, (what, fact)), paper in zip(_QUANTITIES.items(), numbers, strict=True)
}
