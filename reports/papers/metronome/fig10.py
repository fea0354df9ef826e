"""Fig. 10: the window in the engine against recycling sessions above it, and what vLLM PR 49439 would do instead."""

from reports.claims.bands import of_percentile
from reports.claims.quantities import Measure, Setting, of, quotient, ratio, tally, value
from reports.claims.stated import claim, level, times
from reports.figures.dashboard import views_by_engine
from reports.papers.metronome.calls import BASELINE, DEAR_FEED_S, HALF, OURS, PR, RECYCLING, calls
from reports.papers.metronome.fig4b import OWN_SEEDS
from reports.papers.metronome.measures import BELOW_THE_POOL, ONE_RUN, WHOLE_MS, latency_percentile

RUNS = list(OWN_SEEDS["day 2", 96])
"""The seeds of day 2 in Fig. 4b."""

TITLE = "Fig. 10: bounding in the engine, recycling above it, or evicting waiting calls (N = 96)"

ENGINES = [BASELINE, RECYCLING, OURS, PR]
_PANEL, _DEAR = "N = 96", "N = 96, 80 µs a chunk"
EXPERIMENTS = {
    _PANEL: calls("fig10", ENGINES, sessions=96, seeds=RUNS),
    _DEAR: calls("fig10", [RECYCLING], sessions=96, feed_s=DEAR_FEED_S, seeds=RUNS),
}
QUICK = HALF

PAPER = {"wall_s": 240.0, "recycling p50": (0.014, 0.017), "recycling p90": 0.036}

_UNBOUNDED, _RECYCLING, _WINDOWED = (of(_PANEL, engine) for engine in (BASELINE, RECYCLING, OURS))
_DEARER = of(_DEAR, RECYCLING)
_LATE = {percentile: latency_percentile(percentile, since=2 / 3) for percentile in (50, 90)}
"""Percentile -> latency in the last third of the call."""


def _growth(setting: Setting) -> Measure:
    return quotient(value(_LATE[50], setting), value(latency_percentile(50, until=1 / 3), setting))


_MECHANISM = (
    "a recycled call gets its last 16 chunks again, so its Step takes the time of 17 chunks, and "
    "every call in it waits. Calls are first recycled together and then drift apart, until most Steps "
    "have one"
)

_CHUNKS = "the 16 chunks that are fed again were fitted to the median late in the call"

CLAIMS = {
    "fig10-wall": claim(
        "unbounded KV hits the wall at about 240 s",
        level(240.0, "s", within=ONE_RUN),
        value("wall_s", _UNBOUNDED),
        "{ours:.0f} s here: the tokens of a frame are those of N = 128 (55, full at 148 s), while 240 s at N = 96 "
        "take 45: one run's factor of 0.8, and the paper shows one run",
        remark="Fig. 6a has 148 s at N = 128, which is 197 s at N = 96 at the same fill rate",
    ),
    "fig10-recycling-walls": claim(
        "recycling avoids the wall", level(0.0, "%", words="no wall"), tally("wall", _RECYCLING), check=BELOW_THE_POOL
    ),
    "fig10-recycling-p50": claim(
        "recycling: median latency late in the call",
        level(PAPER["recycling p50"], "ms", within=WHOLE_MS),
        value(_LATE[50], _DEARER),
        fitted="two constants were fitted to it: the time to feed a chunk (80 µs here, 20 µs elsewhere), and "
        "the number of chunks fed again; of 14 to 18 chunks, 16 are nearest to the middle, 15.5 ms",
        remark="80 µs would give 8 ms for every Step of 96 calls, where Table 1 has 1 to 5 ms. No single "
        "cost of a chunk meets both, so in the paper's stack a chunk that is fed again costs more "
        "than a new one",
    ),
    "fig10-recycling-p90": claim(
        "recycling: P90 latency late in the call",
        level(PAPER["recycling p90"], "ms", within=of_percentile(0.9, 50, printed=0.001)),  # Steps in 100 s
        value(_LATE[90], _DEARER),
        "both constants were fitted to the median alone. The P90 is set by how many calls one Step recycles: by the "
        "chunks that are fed again and by how far calls have drifted apart. The paper publishes neither",
        remark="14 to 17 chunks all meet the median (14.3 to 15.7 ms), and their P90 are 40, 39, 56 and 59 ms",
    ),
    "fig10-recycling-grows": claim(
        "recycling: the cost grows over the call (median latency, last third over first)",
        times((1.3, 20.0), words="grows"),
        _growth(_RECYCLING),
        _MECHANISM,
        chosen=_CHUNKS,
        remark="at 20 µs a chunk",
    ),
    "fig10-encodes": claim(
        "recycling encodes audio again, the window never does (P90 latency late in the call, over the window's)",
        times((1.5, 100.0), words="more"),
        ratio(_LATE[90], _RECYCLING, to=_WINDOWED),
        _MECHANISM,
        chosen=_CHUNKS,
    ),
}

draw = views_by_engine(
    TITLE,
    EXPERIMENTS,
    ENGINES,
    "vllm_realtime_pr49439 is our addition: the proposal of a vLLM pull request, which is not in the paper.",
)
