"""What no paper shows: how much batch work a voice service carries while it talks, and what is heard of it."""

from reports.papers.conserve.common import *

TITLE = "Voice beside documents: what 8 callers hear, over the limit of the thinker's steps"

LIMITS_MS = (10, 14, 20, 40)
_VOICE: dict[str, Any] = {"deployment": "qwen3_omni_2gpu", "c": 8, "sessions": 16, "p": 0.3}


def _experiment(name: str, engine: str, fixed: dict[str, Any], grid: dict[str, list[Any]]) -> Experiment:
    return Experiment(
        name=name,
        engines=[engine],
        workload="voice_batch",
        set={**_VOICE, **fixed},
        grid=grid,
        seeds=SEEDS,
        timeout_s=900,
    )


EXPERIMENTS = {
    ALONE: _experiment("conserve-voice-alone", ONLINE_ONLY, {"pool": 0}, {}),
    BOTH: _experiment(
        "conserve-voice", OURS, {"ttft_slo_s": 0.2}, {"tbt_slo_s": [limit / 1000 for limit in LIMITS_MS]}
    ),
}
QUICK = {"sessions": "8"}

PAPER: Mapping[str, float] = {}
CLAIMS: list[Any] = []


def draw(panels: Mapping[str, Run], paper: Any) -> Picture | LeftOut:
    """Continuity, TTFP and documents' tokens over the limit; without documents as a level."""
    figure, axes = sheet(1, 3, TITLE)
    looks = engine_looks(ONLINE_ONLY, OURS)
    alone = of(ALONE, ONLINE_ONLY).points(panels)
    points = {limit: of(BOTH, OURS, tbt_slo_s=limit / 1000).points(panels) for limit in LIMITS_MS}
    used: list[Measured] = [*alone, *(point for found in points.values() for point in found)]
    if all(point.error is not None for point in used):
        return LeftOut("voice", TITLE, "no point of it is finished")
    for own, metric, factor in zip(axes, ("continuity", "audio_ttfp_p90", TPS), (100, 1, 1e-3), strict=True):
        if metric != TPS:
            level = over_seeds(alone, metric)
            line(own, dict.fromkeys(LIMITS_MS, level), looks[ONLINE_ONLY], "callers alone", factor)
        spreads = {limit: over_seeds(found, metric) for limit, found in points.items()}
        line(own, spreads, looks[OURS], "with documents", factor)
    labels = ("replies without a gap, %", "P90 TTFP, s", "documents' tokens, 1000/s")
    for own, label in zip(axes, labels, strict=True):
        own.set_xscale("log", base=2)
        own.set_xticks(LIMITS_MS, [str(limit) for limit in LIMITS_MS])
        own.set_ylim(bottom=0)
        own.set_xlabel("t_TBT of the thinker, ms")
        own.set_ylabel(label)
    legend(figure, axes[0])
    caption = (
        "Qwen3-Omni on two H200. The talker takes a token of text with every frame, and has 0.32 s of audio out before "
        "its second packet of 25 frames is due: text slower than 13 ms a token makes it late. ConServe's five terms "
        "predict steps of a mixture of experts too short, so that they last longer than the limit."
    )
    return Picture("voice", TITLE, figure, f"{caption} {made_from(used, bars=True)}")
