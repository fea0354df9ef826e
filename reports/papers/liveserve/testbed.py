"""Settings that the paper leaves open, varied one at a time: the length of prompts, the meaning of c, and routing."""

from typing import Any

from reports.claims.quantities import of
from reports.figures.forms import bars, figure, grid, lines
from reports.papers.liveserve.common import PAIR, PROMPTS, SHAREGPT, experiment

TITLE = "Testbed: the TTFP over the length of prompts, and over the meaning of c"

TOKENS = [100, 500, 1000, 2500, 4000]
LENGTH = "prompt length"
READINGS: dict[str, dict[str, Any]] = {
    "as in the cards": {},
    "c over the whole server": {"c_scope": "deployment"},
    "least load": {"routing": "least_load", "talker_routing": "least_load"},
    "ShareGPT's prompts": {"prompt_tokens": None, "prompt_sigma": None, "max_prompt_tokens": 2048},
}

EXPERIMENTS = {
    LENGTH: experiment("testbed", PAIR, "sharegpt", {**SHAREGPT, "c": 8, "p": 0}, prompt_tokens=TOKENS),
    **{
        name: experiment("testbed", PAIR, "sharegpt", {**SHAREGPT, "c": 8, "p": 0, **changes})
        for name, changes in READINGS.items()
    },
}
QUICK = {"requests": "64"}

PAPER = {  # percentile -> engine -> s
    50: {"vllm_omni": 0.86, "liveserve": 0.53},
    90: {"vllm_omni": 1.38, "liveserve": 0.84},
}

_READ = {engine: {name: of(name, engine) for name in READINGS} for engine in PAIR}
_MARKS = {p: {e: {PROMPTS["prompt_tokens"]: ttfp_s} for e, ttfp_s in PAPER[p].items()} for p in PAPER}
_OVER = grid(LENGTH, PAIR, prompt_tokens=TOKENS)
_LENGTH: dict[str, Any] = {"xlabel": "tokens of a prompt, median", "xlim": (0, None)}
draw = figure(
    TITLE,
    *(lines(f"audio_ttfp_p{p}", _OVER, marks=_MARKS[p], **_LENGTH) for p in PAPER),
    *(bars(f"audio_ttfp_p{p}", _READ, tilted=True) for p in PAPER),
    width_ratios=[3, 3, 4, 4],
    caption="c = 8, no interruptions. The paper's values are drawn at the length that all cards have. We "
    "chose this length to match the baseline's median; everything else follows from public runs, "
    "settings and the paper's text.",
)
