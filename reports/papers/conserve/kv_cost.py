"""Sections 4.4 and 6.5: cost of copying KV to the host as it is computed, in time of the link and of the steps."""

import numpy as np

from reports.claims.bands import of_digits
from reports.claims.quantities import each, value
from reports.claims.stated import claim, level
from reports.figures.forms import distribution, figure
from reports.papers.conserve.loads import BOTH, SLO, SYNTHETIC, at, both
from reports.papers.conserve.measures import online_requests
from reports.papers.conserve.systems import OURS
from reports.runs.measured import Measured

TITLE = "KV checkpoints: bytes for a token, and the share of a step that copying takes"

_14B = {**SYNTHETIC, "deployment": "qwen2_5_14b_h100", "rate": 1.0, "requests": 120, "layer_preemption": False}
EXPERIMENTS = {
    f"8b: {BOTH}": both("kv 8b", SLO["rate 2"], engines=[OURS], **SYNTHETIC, layer_preemption=False),
    f"14b: {BOTH}": both("kv 14b", SLO["14b 1"], engines=[OURS], **_14B),
}
"""Requests never leave a step, so that every token of a step is kept."""
QUICK = {"requests": "40"}

LINK = 37e9
"""Bytes per second, by the paper's measurement; the deployments' own constant."""


def bytes_per_token(point: Measured) -> float | None:
    """Bytes that went to the host for each token that was computed for documents."""
    copied = point.record.counters.get("thinker.d2h_bytes")
    trace = point.record.table("trace")
    prompts = int(trace.loc[trace["request_class"] == "online", "input_tokens"].to_numpy().sum())
    online = int(online_requests(point)["generated_entry"].sum()) + prompts
    documents = int(point.record.table("steps")["tokens"].to_numpy().sum()) - online
    return copied / documents if copied and documents > 0 else None


def copies_s(point: Measured) -> tuple[np.ndarray, np.ndarray]:
    """Return for each step that reads prompts the time of the link for its KV, and its own time."""
    size, steps = bytes_per_token(point), point.record.table("steps")
    reading = steps.loc[steps["prefill_tokens"] > 0] if size is not None else steps.iloc[:0]
    return reading["prefill_tokens"].to_numpy() * (size or 0) / LINK, reading["dt_s"].to_numpy()


def longest_s(point: Measured) -> float | None:
    return max(copies_s(point)[0], default=None)


def shares(point: Measured) -> np.ndarray:
    """Return the share of copying in the time of each step that reads prompts."""
    return np.divide(*copies_s(point))


_HIDDEN = "Sec. 6.5: the largest copy ends within 7 ms and is completely overlapped"
CLAIMS = {
    "kv-cost-14b": claim(
        "a link of 64 GiB/s takes the checkpoints of 349,000 tokens/s of Qwen2.5-14B (in thousands)",
        level(349.0, within=of_digits(1.0)),
        each(value(bytes_per_token, at("14b", OURS)), lambda size: 64 * 2**30 / size / 1000),
        "{ours:.0f}: a document's last tokens do not fill a block, and a partial block is never copied",
        check="64 GiB over the bytes of a token's KV",
    ),
    "kv-cost-longest": claim(
        "the largest copy, Llama-3.1-8B, ends within 7 ms",
        level((0.0, 0.007), "ms", within=of_digits(0.001)),
        value(longest_s, at("8b", OURS)),
        "{ms:.1f} ms: our steps read more than the 2,048 tokens for which it is 7 ms",
        fact=_HIDDEN,
    ),
    "kv-cost-overlap": claim(
        "and is hidden behind its step (largest share of one)",
        level((0.0, 1.0), "%", words="completely overlapped"),
        value(lambda point: max(shares(point), default=None), at("8b", OURS)),
        fact=_HIDDEN,
        check="the next step would wait for a copy that takes longer than its own step",
    ),
}

draw = figure(
    TITLE,
    distribution(
        shares,
        {name.upper(): at(name, OURS) for name in ("8b", "14b")},
        xlabel="copying, % of its step's time",
        ylabel="share of the steps that read prompts",
    ),
    caption="Copies run during the steps; at 100 % they would delay the next step.",
)
