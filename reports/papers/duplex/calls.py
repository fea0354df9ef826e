"""End-of-turn detection of a busy server: rates and delays over the number of calls."""

from reports.claims.claim import Claim
from reports.claims.quantities import Panels, difference, of, ratio
from reports.claims.stated import claim, level, merged, times
from reports.figures import turn_taking
from reports.figures.picture import LeftOut, Picture
from reports.papers.duplex.common import duplex

TITLE = "Turn-taking over the number of calls: times of answers, interruptions and silence"

ENGINES = ["vllm_omni", "liveserve"]
CALLS = [1, 16, 64]
OVER = "calls"
EXPERIMENTS = {OVER: duplex("calls", ENGINES, {"p": 0.3, "hesitations": 0.5}, c=CALLS)}
QUICK = {"sessions": "16", "c": "1,16"}


def _claims(engine: str) -> dict[str, Claim]:
    alone, busy = (of(OVER, engine, c=c) for c in (CALLS[0], CALLS[-1]))
    return {
        f"calls-endpointing-{engine}": claim(
            f"the end of a turn is found as late at 64 calls as at one, {engine}",
            level(0.0, "ms", within=0.005, words="as late"),
            difference("endpointing_p50", busy, less=alone),
        ),
        f"calls-stop-{engine}": claim(
            f"an interruption is found and the reply cut as late at 64 calls as at one, {engine}",
            level(0.0, "ms", within=0.02, words="as late"),
            difference("stop_p50", busy, less=alone),
        ),
        f"calls-answer-{engine}": claim(
            f"the answer comes later at 64 calls than at one, median, {engine}",
            times((1.05, 100), words="later"),
            ratio("end_of_turn_delay_p50", busy, to=alone),
        ),
    }


CLAIMS = merged(map(_claims, ENGINES))


def draw(panels: Panels) -> Picture | LeftOut:
    """Each rate and delay over the number of calls."""
    run = panels.get(OVER)
    return turn_taking.draw(run) if run is not None else LeftOut(turn_taking.NAME, TITLE, "it was not run")
