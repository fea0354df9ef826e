"""The testbeds on which the baseline comes nearest to the paper's numbers, as evidence for claims about LiveServe.

They were chosen with the baseline alone (card `liveserve-testbed`), so LiveServe's gains on them are predictions given
the baseline. The axes themselves were found with LiveServe's results in view. A claim cannot be told if its numbers on
these testbeds enclose the paper's.
"""

from collections.abc import Callable, Sequence

from harness.experiments.experiment import Experiment
from reports.claims.claim import Untold
from reports.claims.quantities import Measure, Setting, of
from reports.claims.stated import unpublished
from reports.papers.liveserve.common import PAIR
from reports.papers.liveserve.testbed import STALLS, Testbed, loaded

TESTBEDS = [
    Testbed("qwen3_omni_2gpu_may_chunks", 14, 4000, 60, step_stall_chance=STALLS),
    Testbed("qwen3_omni_2gpu_may_chunks", 16, 4000, 60, step_stall_chance=STALLS),
    Testbed("qwen3_omni_2gpu_april", 25, 4000, 60, step_stall_chance=STALLS),
    Testbed("qwen3_omni_2gpu_june", 14, 4000, 60, step_stall_chance=STALLS),
]
"""No testbed meets every number, so these are the nearest with stalls: of each month the one that meets most, and the
one that meets most together with the share of continuous replies at c = 12 (the second). Chosen by the baseline
alone."""

_OPEN = (
    "the month of its server, its first packet, the lengths of prompts and replies, and how often the host stalls; "
    "range: four testbeds on which the baseline is nearest to the paper's (liveserve-testbed)"
)


def on_testbeds(load: str, cs: Sequence[int]) -> dict[str, Experiment]:
    """Return the experiments of a load on each testbed, with both engines, by panel."""
    return {
        _panel(testbed, load): loaded("testbed-set", PAIR, load, c=[*cs], **testbed.settings) for testbed in TESTBEDS
    }


def on(testbed: Testbed, load: str, c: int) -> tuple[Setting, Setting]:
    """Return LiveServe and the baseline on a testbed."""
    panel = _panel(testbed, load)
    return of(panel, "liveserve", c=c), of(panel, "vllm_omni", c=c)


def over_testbeds(load: str, c: int, measure: Callable[[Setting, Setting], Measure]) -> Untold:
    """Return the claim's number on each testbed; `measure` makes it from LiveServe's setting and the baseline's."""
    return unpublished(_OPEN, {testbed.label: measure(*on(testbed, load, c)) for testbed in TESTBEDS})


def _panel(testbed: Testbed, load: str) -> str:
    return f"{testbed.label}; {load}"
