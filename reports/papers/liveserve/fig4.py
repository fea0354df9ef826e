"""Fig. 4: how far the stages of the baseline run ahead of the listener of one long reply.

The paper's picture has no numbers; those of the same kind of reply are in Fig. 15.
"""

from reports.figures.style import SPEECH
from reports.papers.liveserve.common import *

TITLE = "Fig. 4: completion of each stage and of playback, one reply under vllm_omni"

EXPERIMENTS = {"one reply": experiment("fig4", ["vllm_omni"], "sharegpt", LONG_REPLY, timeout_s=300)}

_REPLY = of("one reply", "vllm_omni")


def _last_stage(point: Measured) -> float | None:
    """When the slowest stage was done, over the time at which playback was."""
    log = reply_log(point)
    return log and float(log.decoded_s[-1]) / log.heard_by_s


def _thinker(point: Measured) -> float | None:
    """When the text was complete, over the time at which playback was."""
    log = reply_log(point)
    return log and float(log.thinker[0][-1]) / log.heard_by_s


CLAIMS = {
    "fig4-ahead": claim(
        "every stage is complete long before playback (time of the last one over that of playback)",
        times((0.0, 0.5), words="long before"),
        value(_last_stage, _REPLY),
        "here at {percent:.0f} % of the time of playback",
        check="stages run several times faster than playback, by the constants of the deployment",
    ),
    "fig4-thinker": claim(
        "the text is complete long before playback (the same for the thinker)",
        times((0.0, 0.5), words="long before"),
        value(_thinker, _REPLY),
        "here at {percent:.0f} % of the time of playback",
        check="stages run several times faster than playback, by the constants of the deployment",
    ),
}


def draw(panels: Mapping[str, Run], paper: Any) -> Picture | LeftOut:
    """Completion of thinker, talker, vocoder and playback over time."""
    logs = ((point, reply_log(point)) for point in _REPLY.points(panels) if point.error is None)
    point, log = next(((point, log) for point, log in logs if log is not None), (None, None))
    if point is None or log is None:
        return LeftOut("fig4", TITLE, "no reply was heard to its end")
    figure, (axes,) = sheet(1, 1, TITLE)
    talker = engine_looks("vllm_omni")["vllm_omni"].colour
    speech_s = log.delivered[1][-1]
    played = log.played(log.clock) / speech_s
    axes.fill_between(
        log.clock, log.generated(log.clock) / speech_s, played, color=talker, alpha=0.15, lw=0,
        label="generated, not yet heard",
    )  # fmt: skip
    axes.step(log.thinker[0], log.thinker[1] / speech_s, where="post", color=SPEECH, lw=1.6, ls=(0, (1, 1)),
              label=f"thinker, done after {log.thinker[0][-1]:.1f} s")  # fmt: skip
    axes.step(log.talker[0], log.talker[1] / speech_s, where="post", color=talker, lw=2.4,
              label=f"talker, {log.generated_by_s:.1f} s")  # fmt: skip
    axes.step(log.decoded_s, log.delivered[1][1:] / speech_s, where="post", color=INK, lw=0.9,
              label=f"vocoder, {log.decoded_s[-1]:.1f} s")  # fmt: skip
    axes.plot(
        log.clock, played, color=MUTED, lw=1.8, ls=(0, (5, 2)), label=f"playback, {log.heard_by_s:.1f} s"
    )
    axes.set(xlabel="time since the end of the user's turn, s", ylabel="complete", xlim=(0, None))
    in_per_cent(axes)
    legend(axes)
    caption = (
        "How much of the reply each stage has made, and how much of it has been heard. What lies between talker and "
        f"playback would be lost in an interruption. A reply of {speech_s:.1f} s, served alone; seed {point.seed}, "
        "n = 1."
    )
    return Picture("fig4", TITLE, figure, caption)
