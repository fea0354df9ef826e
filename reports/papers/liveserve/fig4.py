"""Fig. 4: lead of the baseline's stages over the listener of one long reply.

The paper's picture has no numbers; those of the same kind of reply are in Fig. 15.
"""

from typing import Any

from reports.claims.quantities import Panels, of, value
from reports.claims.stated import claim, times
from reports.figures.forms import custom, figure
from reports.figures.frames import finished
from reports.figures.style import INK, MUTED, SPEECH, engine_looks
from reports.papers.liveserve.common import LONG_REPLY, experiment, of_reply, reply_log

TITLE = "Fig. 4: completion of each stage and of playback, one reply under vllm_omni"

_FACT = "Section 2.3, Fig. 4: every stage is complete long before playback"

EXPERIMENTS = {"one reply": experiment("fig4", ["vllm_omni"], "sharegpt", LONG_REPLY, timeout_s=300)}

_REPLY = of("one reply")


CLAIMS = {
    f"fig4-{name}": claim(
        f"{what} is complete long before playback ({how})",
        times((0.0, 0.5), words="long before"),
        value(of_reply(over_playback), _REPLY),
        "ours at {percent:.0f} % of the time of playback",
        fact=_FACT,
        check="stages run several times faster than playback, by the constants of the deployment",
    )
    for name, what, how, over_playback in (
        (
            "ahead",
            "every stage",
            "end of the last stage over end of playback",
            lambda log: log.decoded_s[-1] / log.heard_by_s,
        ),
        ("thinker", "the text", "the same for the thinker", lambda log: log.thinker[0][-1] / log.heard_by_s),
    )
}


def _stages(axes: Any, panels: Panels) -> int:
    """Completion of thinker, talker, vocoder and playback over time, of one reply."""
    for point in finished(_REPLY.points(panels)):
        log = reply_log(point)
        if log is None:
            continue
        talker, speech = engine_looks("vllm_omni")["vllm_omni"].colour, log.delivered[1]
        played = log.played(log.clock) / speech[-1]
        axes.set_title(f"a reply of {speech[-1]:.1f} s, seed {point.seed}, n = 1")
        axes.fill_between(log.clock, log.generated(log.clock) / speech[-1], played, color=talker, alpha=0.15, lw=0,
                          label="generated, not yet heard")  # fmt: skip
        for name, (done_s, made), how in (
            ("thinker, done after", log.thinker, {"color": SPEECH, "lw": 1.6, "ls": (0, (1, 1))}),
            ("talker,", log.talker, {"color": talker, "lw": 2.4}),
            ("vocoder,", (log.decoded_s, speech[1:]), {"color": INK, "lw": 0.9}),
        ):
            axes.step(done_s, made / speech[-1], where="post", label=f"{name} {done_s[-1]:.1f} s", **how)
        label = f"playback, {log.heard_by_s:.1f} s"
        axes.plot(log.clock, played, color=MUTED, lw=1.8, ls=(0, (5, 2)), label=label)
        return 1
    return 0


draw = figure(
    TITLE,
    custom(
        _stages, percent=(0, 1), xlim=(0, None), xlabel="time since the end of the user's turn, s", ylabel="complete"
    ),
    caption="Share of the reply that each stage has generated, and that has been heard. An interruption would "
    "lose the part between talker and playback. The reply is served alone.",
)
