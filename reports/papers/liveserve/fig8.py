"""Fig. 8: why the urgency order needs a KV term: a long context stays resident while its request is put off."""

from typing import Any

import numpy as np
import pandas as pd

from reports.claims.claim import Claim
from reports.claims.quantities import Panels, Quantity, of, ratio
from reports.claims.stated import claim, times
from reports.figures.forms import bars, custom, figure
from reports.figures.frames import finished
from reports.figures.style import engine_looks
from reports.papers.liveserve.common import WARM_SESSIONS, at_thinker, experiment
from reports.runs.measured import Measured

TITLE = "Fig. 8: KV that one long dialogue holds, without policy and with urgency alone"

BLOCK = 16
"""Tokens."""

NO_POLICY, URGENCY = "no policy", "urgency only"
_POLICY = {"pacing": "always", "kv_aware": False, "kv_relief": False, "preload": False, "eviction": "off"}
_SERVER = {
    **WARM_SESSIONS,
    "kv_pool_blocks": 4096,
    "sessions": 6,
    "rate": 2.0,
    "turns": 4,
    "reply_tokens": 150,
    "c": 6,
    "p": 0,
}

EXPERIMENTS = {
    name: experiment("fig8", [engine], "interactive", settings, timeout_s=300)
    for name, engine, settings in ((NO_POLICY, "vllm_omni", _SERVER), (URGENCY, "liveserve", {**_SERVER, **_POLICY}))
}


def held(point: Measured) -> pd.DataFrame:
    """The KV that requests of the target, the session with the most turns, held on the GPU, by returning turn: start,
    finish, s, lasts_s; the blocks of the turn's history, prompt and reply in full; output_tokens, those of the reply.

    KV between turns is idle and not counted.
    """
    trace = pd.DataFrame(point.record.trace().columns())
    target = trace.loc[trace["session"] == trace["session"].mode()[0]].set_index(["session", "turn"])
    blocks = np.ceil((target["input_tokens"] + target["output_tokens"]).cumsum() / BLOCK)
    turns = target.assign(blocks=blocks).join(at_thinker(point))
    return turns.assign(lasts_s=turns["finish"] - turns["start"]).dropna(subset="lasts_s")


def resident_s(point: Measured) -> float | None:
    """Seconds for which a request of the target held KV."""
    turns = held(point)
    return float(np.sum(turns["lasts_s"])) if len(turns) else None


def footprint(point: Measured) -> float | None:
    """Blocks that the target's requests held, on average over the dialogue: first start to last finish."""
    turns = held(point)
    if not len(turns):
        return None
    lasts_s = np.max(turns["finish"]) - np.min(turns["start"])
    return float(np.sum(turns["lasts_s"] * turns["blocks"]) / lasts_s)


_BASE, _OURS = of(NO_POLICY), of(URGENCY)
_WHY = (
    "our thinker has slots and tokens for all, so U0 work never keeps a U2 request out of a step; "
    "only the gate on its lead over playback defers it"
)


def _longer(text: str, quantity: Any) -> Claim:
    return claim(
        text,
        times((1.1, 100), words="more"),
        ratio(quantity, _OURS, to=_BASE),
        _WHY,
        fact="Section 4.1, Fig. 8: urgency alone leaves a long request resident for longer, with more KV",
        chosen="leads are always capped in this card (pacing=always), because there are no interruptions",
        remark=f"the paper shows bars without numbers. Ours: {_WHY}",
    )


CLAIMS = {
    "fig8-duration": _longer("with urgency alone the long request is resident for longer", resident_s),
    "fig8-footprint": _longer("and its mean footprint grows", footprint),
    "fig8-pool": _longer("and so does the KV that all requests hold (block-seconds)", "kv_block_seconds_entry"),
}

_SIDES = {NO_POLICY: _BASE, URGENCY: _OURS}
_STYLE = dict(zip(_SIDES, engine_looks("vllm_omni", "liveserve").values(), strict=True))
_MEASURES: dict[str, Quantity] = {
    "residency\nduration": resident_s,
    "mean\nfootprint": footprint,
    "all requests,\nblock-seconds": "kv_block_seconds_entry",
}


def _longest(axes: Any, panels: Panels) -> None:
    """Return the KV of the target's longest answer over time, of one seed."""
    for (name, setting), look in zip(_SIDES.items(), _STYLE.values(), strict=True):
        for point in finished(setting.points(panels))[:1]:
            turns = held(point)
            longest = turns.loc[turns["output_tokens"].idxmax()]
            lasts_s, blocks = longest["lasts_s"], longest["blocks"]
            times, heights = [-2, 0, 0, lasts_s, lasts_s, lasts_s + 5], [0, 0, blocks, blocks, 0, 0]
            axes.fill_between(times, heights, color=look.colour, alpha=0.2, lw=0)
            axes.plot(times, heights, **look.stroke, label=f"{name}, {lasts_s:.1f} s")
            tokens = longest["output_tokens"]
            axes.set_title(f"one request, an answer of {tokens:.0f} tokens, seed {point.seed}")


draw = figure(
    TITLE,
    custom(_longest, xlabel="time since its first step, s", ylabel="KV blocks held"),
    bars(
        None,
        {name: {text: ratio(q, at, to=_BASE) for text, q in _MEASURES.items()} for name, at in _SIDES.items()},
        style=_STYLE,
        ylabel="over no policy",
    ),
    caption="Six callers with 16,000 tokens of context and long answers share a pool of 4,096 blocks "
    "(pressure ratio 1.5). Left: the longest answer of the caller with the most turns. Right: all "
    "turns of that caller, and all callers; idle KV between turns can be evicted and is not counted. "
    "Urgency only: LiveServe's classes without the KV term, preload, next-use eviction and relief of "
    "waiting requests.",
)
