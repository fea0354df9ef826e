"""What the paper does not show: equation 8 by itself, beside other rules, before replicas that keep KV between turns.

Its evaluation switches OmniProxy off as a whole, for nginx's round robin, and no prompt of its workload begins like
another. Here every caller of a voice service comes with the same system prompt and returns with a longer history, so
that there is something to match. There is no published value to hold ours against, and so there are no claims.
"""

from rehearsal.reports.papers.prelude import *

TITLE = "Routing: callers under one system prompt before four thinkers, by seven rules (no published values)"

RULES = (
    "round_robin",
    "least_load",
    "session_affinity",
    "prefix_match",
    "dynamo",
    "omniproxy",
    "omniproxy_oss",
)
RATES = (8, 32)
"""Calls per second, Poisson: [chosen] with the second all callers are on line within three seconds."""

ENGINE, PANEL = "vllm_omni_wo", "rules"
EXPERIMENTS = {
    PANEL: Experiment(
        name="omniinfer-routing",
        engines=[ENGINE],
        workload="voice",
        set={
            "deployment": "qwen3_omni_8gpu",
            "sessions": 96,
            "turns": 4,
            "p": 0.3,
            "system_tokens": 16_384,  # [chosen] instructions, tools and examples of an agent
        },
        grid={"routing": list(RULES), "rate": list(RATES)},
        seeds=[0, 1, 2],
        timeout_s=900,
    )
}
QUICK = {"sessions": "32", "rate": "32"}

PAPER: Mapping[str, float] = {}
CLAIMS: list[Any] = []

COLOURS = ("#8fb3d9", "#1f4e8c")


def hit_rate(point: Measured) -> float | None:
    """Share of the prompts' tokens that the thinker did not have to compute."""
    asked = point.record.counters.get("prompt_tokens") if point.error is None else None
    computed = point.value("prefill_tokens_thinker")
    return 1 - computed / asked if asked and computed is not None else None


def draw(panels: Mapping[str, Run], paper: Any) -> Picture | LeftOut:
    """Hits, TTFP and continuity by rule, a bar for each rate."""
    figure, axes = sheet(3, 1, TITLE, 1.9, sharex=True)
    points = {
        (rate, rule): of(PANEL, ENGINE, routing=rule, rate=rate).points(panels)
        for rate in panels[PANEL].values("rate")
        for rule in RULES
    }
    used = [point for found in points.values() for point in found]
    if all(point.error is not None for point in used):
        return LeftOut("routing", TITLE, "no point of it is finished")
    quantities = (
        (hit_rate, 100, "prompt tokens\nfrom the cache, %"),
        ("audio_ttfp_p90", 1000, "P90 TTFP, ms"),
        ("continuity", 100, "replies without\na gap, %"),
    )
    rates = panels[PANEL].values("rate")
    for own, (quantity, factor, label) in zip(axes, quantities, strict=True):
        series = {
            f"{rate} calls/s": (
                [across_seeds(over_points(quantity, points[rate, rule])) for rule in RULES],
                Look(colour, "o", "-", 1.4),
            )
            for rate, colour in zip(rates, COLOURS, strict=False)
        }
        bars(own, RULES, series, factor=factor)
        own.set_ylabel(label)
    figure.legend(handles=axes[0].get_legend_handles_labels()[0], loc="outside lower left", ncols=2)
    caption = (
        "Qwen3-Omni on eight H200, four thinkers with prefix caches of their own; every session begins with the same "
        "16,384 tokens. dynamo is the cost of NVIDIA Dynamo's router at temperature 0 (tokens to compute plus tokens "
        "under way), prefix_match the longest match whatever the load, omniproxy_oss OmniInfer's published code. "
    )
    return Picture("routing", TITLE, figure, f"{caption}{made_from(used, bars=True)}")
