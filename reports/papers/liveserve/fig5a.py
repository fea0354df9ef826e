"""Fig. 5a: the load on a server whose idle KV is evicted by LRU: blocks evicted, and the tail that users feel."""

from reports.papers.liveserve.common import *

TITLE = "Fig. 5a: evicted KV and tail latency over load, LRU (interactive, 16k tokens of context)"

CS = [2, 4, 8, 12, 16]
PANEL = "load"

EXPERIMENTS = {
    PANEL: experiment("fig5a", ["vllm_omni"], "interactive", {**INTERACTIVE, "p": 0}, timeout_s=900, c=CS)
}
QUICK = {"c": "2,16", "sessions": "16", "kv_pool_blocks": "8192"}

_LOW, _HIGH = (of(PANEL, "vllm_omni", c=c) for c in (CS[0], CS[-1]))
_NO_NUMBERS = "the figure's curves are described, not tabulated; any rise of a tenth counts"


def evicted(point: Measured) -> float | None:
    """KV blocks of the thinkers whose content was given away."""
    return float(point.record.counters.get("thinker.evict_blocks", 0))


def _rises(text: str, quantity: Any, explanation: Any) -> Claim:
    return claim(
        f"{text} rises with load (c = {CS[-1]} over c = {CS[0]})",
        times((1.1, 100), words="rises"),
        ratio(quantity, _HIGH, to=_LOW),
        explanation,
        remark=_NO_NUMBERS,
    )


CLAIMS = {
    "fig5a-evicted": _rises(
        "KV blocks evicted",
        evicted,
        lambda ours: (
            f"here × {ours:.2f}; at c = 2 contexts of callers who have gone are evicted as well, and nobody needs those"
        ),
    ),
    "fig5a-e2e": _rises(
        "P90 end-to-end latency",
        "e2e_p90",
        lambda ours: (
            f"here × {ours:.2f}: a reply's length decides most of it, and a reload of 16k tokens takes 32 ms"
        ),
    ),
    "fig5a-ttfp": _rises(
        "P90 TTFP of returning turns",
        returning("audio_ttfp_s", 90),
        lambda ours: f"here × {ours:.2f}, reloads and queues together",
    ),
}


@picture(TITLE, 1, 2, bars=True)
def draw(panels: Panels, paper: Any, left: Any, right: Any) -> str:
    """Blocks on the left, seconds on the right, over c."""
    look = engine_looks("vllm_omni", "liveserve", "vllm_omni_wo")

    def over_load(axes: Any, quantity: Any, engine: str, label: str, factor: float = 1) -> None:
        settings = {float(c): of(PANEL, "vllm_omni", c=c) for c in CS}
        line_over(axes, panels, settings, quantity, look[engine], label, factor)

    over_load(left, evicted, "vllm_omni", "evicted", 1e-3)
    over_load(left, "reloaded_blocks", "liveserve", "loaded again, by a waiting turn", 1e-3)
    left.set_ylabel("KV blocks, thousands a run")
    over_load(right, "e2e_p90", "vllm_omni", "P90 end-to-end, all turns")
    right.set_ylabel("P90 end-to-end, s")
    tail = right.twinx()
    over_load(tail, returning("audio_ttfp_s", 90), "vllm_omni_wo", "P90 TTFP, returning turns")
    tail.set_ylabel("P90 TTFP of returning turns, s")
    tail.grid(visible=False)
    tail.spines["right"].set_visible(True)
    for axes in (left, right, tail):
        axes.set_ylim(0, 1.2 * axes.get_ylim()[1])
    for axes in (left, right):
        axes.set(xticks=CS, xlabel="c, requests under way")
    left.legend(loc="upper left")
    handles = [*right.get_legend_handles_labels()[0], *tail.get_legend_handles_labels()[0]]
    right.legend(handles=handles, loc="lower right")
    return (
        "vllm_omni: KV goes to host memory, and LRU decides what leaves the GPU. Left: blocks whose content was given "
        "away, those of callers who had hung up included, and blocks that a turn had to wait for. Right: tails. First "
        "turns bring a context that has to be prefilled; returning turns (not a session's first) show the reloads."
    )
