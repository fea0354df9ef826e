"""What the paper does not show: how many decode replicas go with one that computes prompts, for a given promise.

Searched on a cluster that is quick to replay: Llama-3.1-8B, each replica one H100, with the paper's lengths and chance
arrivals. There is no published value to hold ours against, and so there are no claims.
"""

from reports.papers.omniinfer.cluster import *

TITLE = "What if: decode replicas for each that computes prompts (no published values)"

ENGINE, PANEL = "vllm_omni_wo", "ratio"
DECODE = (1, 2, 3, 4)
RATES = (2, 4, 6, 8, 10)
"""[chosen] requests a second: the first is little for one decode replica, the last much for the prompts."""
TTFT_S, TPOT_S, KEPT = 1.0, 0.025, 0.9
"""[chosen] the promise to a request, and the share of requests to whom it must be kept."""

EXPERIMENTS = {
    PANEL: Experiment(
        name="omniinfer-ratio",
        engines=[ENGINE],
        workload="novel",
        set={
            "deployment": "llama_8b_h100",
            "routing": "least_load",
            "requests": 300,
            "prefill": 1,
            "input_mean": INPUT,
            "output_mean": OUTPUT,
            "playback": "none",
            "stream_interval": 64,
        },
        grid={"decode": list(DECODE), "rate": list(RATES)},
        seeds=SEEDS,
        timeout_s=900,
    )
}
QUICK = {"requests": "200"}

PAPER: Mapping[str, float] = {}
CLAIMS: list[Any] = []

COLOURS = ("#8fb3d9", "#4f81bd", "#1f4e8c", "#d55e00")


def kept(point: Measured) -> float | None:
    """Share of all requests, the failed ones too, to whom the promise was kept."""
    ttft_s, tpot_s = (point.requests[name].to_numpy(float) for name in ("ttft_s", "tbt_mean_s"))
    return float(np.mean((ttft_s <= TTFT_S) & (tpot_s <= TPOT_S)))


def most(panels: Mapping[str, Run], decode: int) -> float | None:
    """The largest rate at which every seed kept the promise, as at every smaller one; None: at none."""
    found = None
    for rate in sorted(panels[PANEL].values("rate")):
        shares = over_points(kept, of(PANEL, ENGINE, decode=decode, rate=rate).points(panels)).values()
        if not shares or not all(share is not None and share >= KEPT for share in shares):
            break
        found = float(rate)
    return found


def draw(panels: Mapping[str, Run], paper: Any) -> Picture | LeftOut:
    """Share of promises kept over the rate, and the largest rate of a GPU, by decode replicas."""
    figure, axes = sheet(1, 2, TITLE)
    rates, decodes = (sorted(panels[PANEL].values(name)) for name in ("rate", "decode"))
    points = {
        (decode, rate): of(PANEL, ENGINE, decode=decode, rate=rate).points(panels)
        for decode in decodes
        for rate in rates
    }
    used = [point for found in points.values() for point in found]
    if all(point.error is not None for point in used):
        return LeftOut("ratio", TITLE, "no point of it is finished")
    for decode, colour in zip(decodes, COLOURS, strict=False):
        spreads = {rate: spread(points[decode, rate], kept) for rate in rates}
        line(axes[0], spreads, Look(colour, "o", "-", 1.4), f"1 : {decode}", factor=100)
    axes[0].axhline(100 * KEPT, color="#8793a3", lw=0.9, ls="--")
    axes[0].set_xlabel("requests/s")
    axes[0].set_ylabel("promises kept, %")
    axes[0].set_ylim(0, 105)
    for place, (decode, colour) in enumerate(zip(decodes, COLOURS, strict=False)):
        rate = most(panels, decode)
        axes[1].bar(place, (rate or 0.0) / (1 + decode), 0.7, color=colour)
        measured = any(point.error is None for each in rates for point in points[decode, each])
        text = f"{rate:g}/s" if rate is not None else "none" if measured else "not measured"
        axes[1].annotate(text, (place, (rate or 0.0) / (1 + decode)), ha="center", va="bottom")
    axes[1].set_xticks(range(len(decodes)), [f"1 : {decode}" for decode in decodes])
    axes[1].set_ylabel("requests/s a GPU, promise kept")
    axes[1].margins(y=0.15)
    legend(figure, axes[0])
    caption = (
        f"Modelled: Llama-3.1-8B, replicas of one H100, prompts of {INPUT} and replies of {OUTPUT} tokens on average. "
        f"Promise: first token within {TTFT_S:g} s, {1000 * TPOT_S:g} ms a token on average, to {100 * KEPT:g} % of "
        "requests. Left: dashed what must be reached; right: the largest of these rates, over all GPUs. "
    )
    return Picture("ratio", TITLE, figure, f"{caption}{made_from(used, bars=True)}")
