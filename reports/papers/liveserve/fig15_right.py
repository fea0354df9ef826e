"""Fig. 15 right: the generation of one long reply, let run and held back to the pace of playback."""

from dataclasses import replace
from typing import Any

from reports.claims.bands import of_model
from reports.claims.quantities import Panels, of, of_turns, value
from reports.claims.stated import claim, level
from reports.figures.forms import custom, figure
from reports.figures.frames import finished
from reports.figures.picture import paper_marker
from reports.figures.style import MUTED, Look, engine_looks
from reports.papers.liveserve.common import LONG_REPLY, PAIR, experiment, of_reply, reply_log

TITLE = "Fig. 15 right: generation against playback of one long reply"

EXPERIMENTS = {
    f"one reply, {engine}": experiment(
        "fig15-right", [engine], "sharegpt", {**LONG_REPLY, **engine_settings}, timeout_s=300
    )
    for engine, engine_settings in (("vllm_omni", {}), ("liveserve", {"pacing": "always"}))
}

PAPER = {"vllm_omni": 8.2, "liveserve": 55.3, "playback": 65.9}  # when each is complete, s

_BASELINE, _OURS = (of(f"one reply, {engine}") for engine in PAIR)


_scaled = of_reply(lambda log: PAPER["playback"] * log.generated_by_s / log.delivered[1][-1])
"""Seconds until generation is complete, for a reply as long as the paper's at the same speed."""
_lead = of_reply(lambda log: log.heard_by_s - log.generated_by_s)
"""Seconds by which generation ends before playback."""

_ALONE = of_model(0.03, "a device time; RTFs of June's server alone are known within 3 % (docs/fidelity.md)")
_END = of_model(1.0 / 10.6, "one reply, whose generation ends anywhere in a packet of 2 s")

CLAIMS = {
    "fig15-right-baseline": claim(
        "the baseline generates 65.9 s of speech in 8.2 s (ours scaled to that length)",
        level(PAPER["vllm_omni"], "s", within=_ALONE),
        value(_scaled, _BASELINE),
        "10.8 ms for each frame, with the start, and 9.95 in the paper; our step times are of vLLM-Omni 0.22, the "
        "paper has 0.20.1",
    ),
    "fig15-right-paced": claim(
        "LiveServe's generation is complete 10.6 s before playback (at 55.3 of 65.9 s)",
        level(PAPER["playback"] - PAPER["liveserve"], "s", within=_END),
        value(_lead, _OURS),
        fitted="lead_cap_s = 10.6 s was taken from this figure, with pacing=always because this reply is not "
        "interrupted; replies wait between packets of 2 s, so ours may end one packet above",
    ),
    "fig15-right-unbroken": claim(
        "paced, the reply still plays without a pause (the longest one)",
        level((0.0, 0.1), "s", words="continuous"),
        value(of_turns("max_gap_s"), _OURS),
        "the reply waits for {ours:.2f} s: the cap leaves too little time for its last packets",
        check="no other request is served, and a single reply is generated six times as fast as it plays",
    ),
}


def _completion(axes: Any, panels: Panels) -> int:
    """Completion of generation under each engine, and playback, in the reply nearest to the paper's in length."""
    by_engine = [
        {p.seed: log for p in finished(at.points(panels)) if (log := reply_log(p)) is not None}
        for at in (_BASELINE, _OURS)
    ]
    both = by_engine[0].keys() & by_engine[1].keys()
    if not both:
        return 0
    lengths = {seed: by_engine[0][seed].delivered[1][-1] for seed in both}
    seed = min(sorted(both), key=lambda seed: abs(lengths[seed] - PAPER["playback"]))
    speech_s, playback = lengths[seed], by_engine[0][seed]
    for (engine, look), logs in zip(engine_looks(*PAIR).items(), by_engine, strict=True):
        times, made = logs[seed].talker
        label = f"{engine}, {logs[seed].generated_by_s:.1f} s"
        axes.step(times, made / speech_s, where="post", color=look.colour, lw=look.width, label=label)
        paper_marker(axes, PAPER[engine], 1, look)
    dashed = {"color": MUTED, "lw": 1.8, "ls": (0, (5, 2)), "label": f"playback, {playback.heard_by_s:.1f} s"}
    axes.plot(playback.clock, playback.played(playback.clock) / speech_s, **dashed)
    paper_marker(axes, PAPER["playback"], 1, Look(MUTED, "o", "-", 1))
    axes.set_title(f"a reply of {speech_s:.1f} s, seed {seed}, n = 1")
    return 1


draw = figure(
    TITLE,
    replace(
        custom(
            _completion,
            percent=(0, 1.03),
            xlim=(0, None),
            xlabel="time since the end of the user's turn, s",
            ylabel="complete",
        ),
        marked=True,
    ),
    paper="paper: complete",
    caption="The baseline generates as fast as it can; LiveServe waits while it is more than `lead_cap_s` = "
    "10.6 s ahead, which was read off this figure. The paper's reply lasts 65.9 s; ours is served "
    "alone.",
)
