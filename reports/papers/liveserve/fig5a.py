"""Fig. 5a: the load on a server that evicts idle KV by LRU: evicted blocks, and the latency tail.

The paper names no axis but load. Here it is the number of callers, who stay and talk until the end of four minutes in
front of the same pool; there are no slots to wait for. One comes each second, so that their contexts are not read all
at once.
"""

from collections.abc import Mapping

from reports.claims.claim import Claim
from reports.claims.quantities import Quantity, of, ratio, value
from reports.claims.stated import claim, times
from reports.figures.forms import Plot, figure, lines
from reports.figures.style import engine_looks
from reports.papers.liveserve.common import INTERACTIVE, experiment, returning
from reports.runs.measured import Measured

TITLE = "Fig. 5a: evicted KV and tail latency over load, LRU (interactive, 16k tokens of context)"

CALLERS = [30, 40, 50, 60]
"""Their contexts are 1.25 to 2.5 times the pool."""
PANEL = "load"
_LOAD = {name: setting for name, setting in INTERACTIVE.items() if name not in ("c_scope", "c_counts")}

EXPERIMENTS = {
    PANEL: experiment(
        "fig5a", ["vllm_omni"], "interactive", {**_LOAD, "rate": 1.0, "p": 0}, timeout_s=900, sessions=CALLERS
    )
}
QUICK = {"sessions": "30,60", "stop_after_s": "120"}

_LOW, _HIGH = (of(PANEL, "vllm_omni", sessions=n) for n in (CALLERS[0], CALLERS[-1]))
_FACT = "Section 2.3, Fig. 5a: LRU eviction under load increases evicted blocks and tail latency"
_NO_NUMBERS = "the figure's curves are described, not tabulated; any rise of a tenth counts"


def evicted(point: Measured) -> float | None:
    """Return the thinkers' KV blocks whose content was evicted."""
    return float(point.record.counters.get("thinker.evict_blocks", 0))


def _rises(text: str, quantity: Quantity, explanation: str, fact: str = _FACT) -> Claim:
    return claim(
        f"{text} rises with load ({CALLERS[-1]} callers over {CALLERS[0]})",
        times((1.1, 100), words="rises"),
        ratio(quantity, _HIGH, to=_LOW),
        explanation,
        fact=fact,
        remark=_NO_NUMBERS,
    )


CLAIMS = {
    "fig5a-evicted": _rises("KV blocks evicted", evicted, "as many turns find their context evicted at either load"),
    "fig5a-e2e": _rises(
        "P90 end-to-end latency",
        returning("e2e_s", 90),
        "a reply's length decides most of it, and a reload of 16k tokens takes 32 ms",
    ),
    "fig5a-ttfp": _rises(
        "(ours) P90 TTFP of returning turns", returning("audio_ttfp_s", 90), "reloads and queues together", fact=""
    ),
}


def _over_load(shown: Mapping[str, tuple[Quantity, str]], ylabel: str) -> Plot:
    """Return quantities by label, each in the look of an engine."""
    look = engine_looks("vllm_omni", "liveserve", "vllm_omni_wo")
    return lines(
        None,
        {
            label: {n: value(quantity, of(PANEL, "vllm_omni", sessions=n)) for n in CALLERS}
            for label, (quantity, _) in shown.items()
        },
        style={label: look[engine] for label, (_, engine) in shown.items()},
        xlabel="callers",
        xticks=CALLERS,
        ylabel=ylabel,
    )


draw = figure(
    TITLE,
    _over_load(
        {"evicted": (evicted, "vllm_omni"), "reloaded by a waiting turn": ("reloaded_blocks", "liveserve")},
        "KV blocks, 1000 a run",
    ),
    _over_load({"P90 end-to-end": (returning("e2e_s", 90), "vllm_omni")}, "P90 end-to-end, s"),
    _over_load({"P90 TTFP": (returning("audio_ttfp_s", 90), "vllm_omni_wo")}, "P90 TTFP, s"),
    caption="vllm_omni: KV is offloaded to host memory, and LRU chooses what to evict. Callers with 16,000 tokens of "
    "context each stay for four minutes. Left: evicted blocks, and blocks that a turn had to wait for. Middle and "
    "right: tails of the turns of the steady window, without the first one of a session, which brings its context.",
)
