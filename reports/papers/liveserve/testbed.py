"""Settings that the paper leaves open, varied one at a time: the length of prompts, the meaning of c, and routing."""

from reports.papers.liveserve.common import *

TITLE = "Testbed: the TTFP over the length of prompts, and over what c counts"

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


@picture(TITLE, 1, 2 * len(PAPER), bars=True, sharey=True, width_ratios=[3, 3, 4, 4])
def draw(panels: Panels, paper: Any, *axes: Any) -> str:
    """P50 and P90 TTFP over the length of prompts; the same for each reading, as bars."""
    own_looks = engine_looks(*PAIR)
    for (percentile, values), over, beside in zip(paper.items(), axes[:2], axes[2:], strict=True):
        metric = f"audio_ttfp_p{percentile}"
        for engine, look in own_looks.items():
            settings = {n: of(LENGTH, engine, prompt_tokens=n) for n in TOKENS}
            line_over(over, panels, settings, metric, look, engine)
            paper_marker(over, PROMPTS["prompt_tokens"], values[engine], look)
        over.set(title=f"P{percentile} TTFP, s", xlabel="tokens of a prompt, median", xlim=(0, None))
        series = {
            engine: ([spread(of(name, engine).points(panels), metric) for name in READINGS], look)
            for engine, look in own_looks.items()
        }
        bars(beside, [name.replace(" ", "\n", 1) for name in READINGS], series)
        beside.set(title=f"P{percentile} TTFP, s")
    for own in axes:
        own.set_ylim(bottom=0)
    legend(axes[0], paper_handle("paper"))
    return (
        "c = 8, nobody interrupts. The paper's values stand at the length that all cards have. This length was chosen "
        "with the baseline's median in view; all else follows from public runs, settings and the paper's text."
    )
