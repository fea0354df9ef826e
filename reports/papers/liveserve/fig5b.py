"""Fig. 5b: how long a returning turn waits for its KV from host memory, over the size of that KV."""

from math import log
from typing import Any

from engines.server import ServerParams, resolve
from reports.claims.quantities import Panels, Setting, each, of, ratio, spread
from reports.claims.stated import claim, level, times
from reports.figures.forms import figure, lines
from reports.figures.style import MUTED
from reports.papers.liveserve.common import PAIR_OF_QWEN, coming_back, experiment

TITLE = "Fig. 5b: reload latency over KV size (one replica, pressure ratio 1.4 to 1.8)"

TOKENS = [2000, 4000, 9000, 18000, 27000, 36000]
PANEL = "KV size"
SERVER: dict[str, Any] = {"deployment": PAIR_OF_QWEN, "kv_pool_blocks": 6400}

EXPERIMENTS = {
    PANEL: experiment(
        "fig5b", ["vllm_omni"], "revisit", {**SERVER, "reply": "speech"}, timeout_s=300, history_tokens=TOKENS
    )
}
QUICK = {"history_tokens": "2000,36000"}

_SMALL, _LARGE = (of(PANEL, "vllm_omni", history_tokens=tokens) for tokens in (TOKENS[0], TOKENS[-1]))


reload_s = coming_back(0, "reload_s")
"""Time that the target's returning turn waited for its KV, s."""

_GROWTH = ratio(reload_s, _LARGE, to=_SMALL)


def _exponent(growth: float) -> float | None:
    """d log(seconds) / d log(tokens) between the smallest and the largest context."""
    return log(growth) / log(TOKENS[-1] / TOKENS[0]) if growth else None


CLAIMS = {
    "fig5b-grows": claim(
        f"a reload takes longer the more KV it brings ({TOKENS[-1]:,} over {TOKENS[0]:,} tokens)",
        times((1.1, 100), words="grows"),
        _GROWTH,
        "the loads of this run did not grow with the context",
        remark="the paper gives neither numbers nor an axis",
        check="the modelled link has a fixed bandwidth",
    ),
    "fig5b-proportional": claim(
        "(ours) in proportion to its size (exponent of seconds over tokens)",
        level(1.0, within=0.15, neutral=0),
        each(_GROWTH, _exponent),
        "ours with an exponent of {ours:.2f}: something besides the transfer takes time",
        remark="the paper only says that it grows. The modelled link has a fixed bandwidth, so this checks that "
        "nothing else waits on the path, not the link itself",
        check="the modelled link has a fixed bandwidth",
    ),
}


def _sizes(panels: Panels) -> dict[str, dict[float, Setting]]:
    """Return the settings by the GB brought back: median over the seeds."""
    block_gb = resolve(ServerParams.model_validate(SERVER)).stages["thinker"].block_bytes / 1e9
    settings = [of(PANEL, "vllm_omni", history_tokens=tokens) for tokens in TOKENS]
    blocks = [spread(at.points(panels), coming_back(0, "reload_blocks")).median for at in settings]
    return {
        "vllm_omni: wait of the returning turn": {n * block_gb: at for n, at in zip(blocks, settings, strict=True) if n}
    }


def _link(axes: Any, panels: Panels) -> None:
    """Return the time of the transfer alone."""
    gb_s, most = resolve(ServerParams.model_validate(SERVER)).gpu.pcie_bandwidth / 1e9, axes.dataLim.x1
    axes.plot([0, most], [0, 1e3 * most / gb_s], color=MUTED, ls="--", lw=1.2, label=f"size / {gb_s:g} GB/s")


_AXES: dict[str, Any] = {"xlabel": "KV brought back, GB", "ylabel": "reload on the turn's path, ms", "xlim": (0, None)}
draw = figure(
    TITLE,
    lines(reload_s, _sizes, extra=_link, **_AXES),
    caption="A typed context of 2,000 to 36,000 tokens, then four others of 36,000 each that overfill the "
    "pool, then the first caller again: time from the arrival of that turn at the thinker until its "
    "KV is there. Bandwidth is that of the modelled link (PCIe 5 x16, large copies), not shared.",
)
