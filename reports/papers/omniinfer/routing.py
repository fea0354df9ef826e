"""What the paper does not show: equation 8 by itself, beside other rules, before replicas that keep KV between turns.

Its evaluation switches OmniProxy off as a whole, for nginx's round robin, and no prompt of its workload begins like
another. Here every caller of a voice service comes with the same system prompt and returns with a longer history, so
that there is something to match. There is no published value to hold ours against, and so there are no claims.
"""

from reports.papers.prelude import *

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
    computed = point.value("prefill_tokens_entry")
    return 1 - computed / asked if asked and computed is not None else None


def draw(panels: Mapping[str, Run], paper: Any) -> Picture | LeftOut:
    """Hits, TTFP and continuity by rule, a bar for each rate."""
    series = {
        f"{rate} calls/s": (
            Look(colour, "o", "-", 1.4),
            [of(PANEL, ENGINE, routing=rule, rate=rate) for rule in RULES],
        )
        for rate, colour in zip(panels[PANEL].values("rate"), COLOURS, strict=False)
    }
    shown: dict[str, tuple[Quantity, float]] = {
        "prompt tokens\nfrom the cache, %": (hit_rate, 100),
        "P90 TTFP, ms": ("audio_ttfp_p90", 1000),
        "replies without\na gap, %": ("continuity", 100),
    }
    caption = (
        "Qwen3-Omni on eight H200, four thinkers with prefix caches of their own; every session begins with the same "
        "16,384 tokens. dynamo is the cost of NVIDIA Dynamo's router at temperature 0 (tokens to compute plus tokens "
        "under way), prefix_match the longest match whatever the load, omniproxy_oss OmniInfer's published code."
    )
    return bars_by_group(TITLE, RULES, series, shown, panels, caption)
