"""Appendix B: a session that reaches the model's maximum context takes the others with it, and a window does not
help."""

from harness.request_tables.frame_table import FAILED
from reports.claims.quantities import of, ratio, value
from reports.claims.stated import claim, level
from reports.figures.dashboard import views_by_engine
from reports.papers.metronome.calls import BASELINE, OURS, RECYCLING, SEEDS, calls
from reports.runs.measured import Measured

TITLE = "Appendix B: eight calls of 23 minutes, which outgrow a context of 32,768 tokens"

ENGINES = [BASELINE, OURS, RECYCLING]
_ALL = "the engine crashes (vLLM 0.23)"
EXPERIMENTS = {
    _ALL: calls(
        "appendix-b", ENGINES, on_max_len="crash_all", sessions=8, duration_s=1400.0, run_cv=0.0, seeds=SEEDS[:3]
    )
}

_GROWS = "a window drops KV, not positions: the request keeps growing logically, at the same pace"


def first_lost_s(point: Measured) -> float | None:
    """Return the due time of the first frame that its session did not live to see, s; None if no frame was lost."""
    frames = point.requests
    lost = frames.loc[frames["status"] == FAILED, "due_s"]
    return float(lost.min()) if len(lost) else None


CLAIMS = {
    "appendix-b-all": claim(
        "a session that reaches max_model_len kills every co-resident one (sessions lost, of 8)",
        level(8.0, words="every one"),
        value("failed_sessions", of(_ALL, BASELINE)),
        check="on_max_len=crash_all copies what the paper saw in vLLM 0.23; finish_one ends only that session",
    ),
    "appendix-b-window": claim(
        "the window does not avoid it: time of the first loss, windowed over unbounded",
        level(1.0, "×", within=0.02, words="same boundary"),
        ratio(first_lost_s, of(_ALL, OURS), to=of(_ALL, BASELINE)),
        check=_GROWS,
        remark="the paper sizes max_model_len above the growth and asks for a bound on a session's state (section 6)",
    ),
}

draw = views_by_engine(TITLE, EXPERIMENTS, ENGINES, "Frames of sessions that were lost count as frames without speech.")
