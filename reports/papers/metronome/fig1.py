"""Fig. 1: one five-minute call at 128 sessions, as a dashboard sees it and as its users do."""

from reports.claims.bands import of_digits
from reports.claims.quantities import of, value
from reports.claims.stated import claim, level
from reports.figures.dashboard import views
from reports.figures.frames import median_run
from reports.figures.style import engine_looks
from reports.papers.metronome.calls import BASELINE, HALF, OURS, PAIR, SEEDS, calls
from reports.papers.metronome.measures import CAPPED, FEW_MS, STEP_CALL, latency_median, speech_after_wall, worst_bucket

TITLE = "Fig. 1: one five-minute call at 128 sessions: healthy on the dashboard, silent to its users"

_PANEL = "N = 128"
HEARD_AND_SAID = 28  # the tokens of a frame (55) without audio, and without the last one said, which is dropped
SPLITS = {spoken: f"{spoken} of 55 said" for spoken in (3, 12, 27)}
"""The same growth with fewer and with more tokens said."""
EXPERIMENTS = {_PANEL: calls("fig1", PAIR, sessions=128)} | {
    panel: calls(
        "fig1",
        [BASELINE],
        sessions=128,
        template_tokens=HEARD_AND_SAID - spoken,
        tokens_per_frame=float(spoken),
        seeds=SEEDS[:3],
    )
    for spoken, panel in SPLITS.items()
}
QUICK = HALF

_UNBOUNDED, _WINDOWED = of(_PANEL, BASELINE), of(_PANEL, OURS)

_ONE_BY_ONE = (
    "the median share of frames with speech is still {percent:.0f} %: the more is said, the more "
    "often decode meets the full pool. It preempts, which frees blocks for the others, and sessions "
    "fall silent one by one. One silent session is enough for the wall, because the batched Step "
    "waits for it"
)

CLAIMS = {
    "fig1-ceiling": claim(
        "unbounded KV jumps to a ceiling of about 1.6 s (median after the jump)",
        level(1.6, "s", within=of_digits(0.1)),
        value(latency_median(after_wall=True), _UNBOUNDED),
        check=CAPPED,
    ),
    "fig1-silence": claim(
        "the stalled engine stops producing tokens: frames with speech after the jump",
        level(0.0, "%", within=0.05, words="none"),
        value(speech_after_wall, _UNBOUNDED),
        _ONE_BY_ONE,
        remark="with 7 of a frame's 55 tokens said: the remainder of Table 2's layout, and the 'few tokens' "
        "of Fig. 2; with 3, healthy Steps take hundreds of ms, because some frames then have nothing "
        "new to return",
    ),
    "fig1-windowed": claim(
        "windowed KV stays flat for the whole call (highest median of 10 s)",
        level(FEW_MS, "ms", words="flat"),
        value(worst_bucket, _WINDOWED),
        fitted=STEP_CALL,
    ),
}

_BY_SPOKEN = {"7 of 55 said": [_UNBOUNDED], **{panel: [of(panel, BASELINE)] for panel in SPLITS.values()}}
_LOOKS = dict(zip(_BY_SPOKEN, engine_looks(BASELINE, *SPLITS.values()).values(), strict=True))
draw = views(
    TITLE,
    {"7 of 55 said": {BASELINE: [_UNBOUNDED], OURS: [_WINDOWED]}, "unbounded, by what is said": _BY_SPOKEN},
    engine_looks(*PAIR) | _LOOKS,
    "Each line is the run with the median share of frames with speech among its seeds.",
    pick=median_run,
)
