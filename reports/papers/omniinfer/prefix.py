"""What the paper does not show: what equation 8's prefix term does, before prefill instances that keep prefixes.

No prompt of Table 1 and 2's workload begins like another, so that the term is 0 there. Here people with a document of
6,000 tokens ask several times, and each prompt begins with what was said before. There is no published value to hold
ours against, and so there are no claims.
"""

from reports.papers.omniinfer.cluster import *
from reports.papers.omniinfer.routing import hit_rate

TITLE = "Equation (8)'s prefix term: conversations before four prefill instances (no published values)"

RULES = {
    "round robin": {"routing": "round_robin"},
    "load alone": {"routing": "omniproxy_load"},
    "equation (8)": {"routing": "omniproxy"},
    "load alone,\ndeferred": {"routing": "omniproxy_load", "deferred": True},
    "equation (8),\ndeferred": {"routing": "omniproxy", "deferred": True},
}
RATES = (2, 3)
"""[chosen] people a second, each of whom asks five times: some half and three quarters of what the instances can do
without any prefix."""
BEGUN_S = 30.0
"""[chosen] before which requests are not counted."""


def _panel(name: str) -> str:
    return name.replace("\n", " ")


EXPERIMENTS = {
    _panel(name): Experiment(
        name=f"omniinfer-prefix-{place}",
        engines=[ENGINE],
        workload="interactive",
        set={
            "deployment": "deepseek_r1_4p8_1d32",
            "prefix_caching": True,
            "decode_routing": "least_work",
            "sessions": 600,
            "rounds": 5,
            "rounds_shape": 1,
            "opening_tokens": 6000,
            "system_tokens": 1024,
            "think_s": 5,
            "think_s_per_token": 0,
            "think_sigma": 0.5,
            "reply_tokens": 200,
            "max_reply_tokens": 800,
            "playback": "none",
            "turn_timeout_s": 900,
            "stream_interval": 64,
            **rule,
        },
        grid={"rate": list(RATES)},
        seeds=SEEDS,
        timeout_s=900,
    )
    for place, (name, rule) in enumerate(RULES.items())
}
QUICK = {"sessions": "150", "rate": "2"}

PAPER: Mapping[str, float] = {}
CLAIMS: list[Any] = []

COLOURS = ("#8fb3d9", "#1f4e8c")


def _ttft_s(point: Measured) -> np.ndarray:
    table = point.requests
    return table.loc[table["turn_start_s"] > BEGUN_S, "ttft_s"].dropna().to_numpy(float)


def ttft_s(point: Measured) -> float | None:
    """Mean of those that came after the beginning."""
    return float(_ttft_s(point).mean())


def ttft_p99_s(point: Measured) -> float | None:
    """The same, 99th percentile."""
    return float(np.percentile(_ttft_s(point), 99))


def draw(panels: Mapping[str, Run], paper: Any) -> Picture | LeftOut:
    """Hits and TTFT by rule, a bar for each rate."""
    rates = next(iter(panels.values())).values("rate")
    series = {
        f"{rate:g} people/s": (
            Look(colour, "o", "-", 1.4),
            [of(_panel(name), ENGINE, rate=rate) for name in RULES],
        )
        for rate, colour in zip(rates, COLOURS, strict=False)
    }
    shown: dict[str, tuple[Quantity, float]] = {
        "prompt tokens\nfrom the cache, %": (hit_rate, 100),
        "mean TTFT, s": (ttft_s, 1),
        "P99 TTFT, s": (ttft_p99_s, 1),
    }
    caption = (
        "Modelled: DeepSeek-R1 INT8, four prefill instances with prefix caches. Everybody brings 6,000 tokens under "
        "one system prompt of 1,024, asks five times on average, five seconds apart, and gets some 240 tokens. Load "
        "alone is equation (8) with α = 0."
    )
    return bars_by_group(TITLE, list(RULES), series, shown, panels, caption)
