"""Lead of generation over playback in one long reply that every engine served.

The same picture as LiveServe's Fig. 15 right. Speech generated far ahead of playback is lost when the user
interrupts.
"""

from typing import Any

from harness.request_tables.request_table import COMPLETED
from reports.figures.drawing import legend, sheet
from reports.figures.picture import LeftOut, Picture, at, line_handle, patch_handle
from reports.figures.shared_turns import ReplyLog, SharedTurn, shared_turns
from reports.figures.style import INK, MUTED, SPEECH, looks
from reports.runs.measured import Run, Variant
from reports.tables.labels import setting

NAME = "generation_playback"
GENERATION, PLAYBACK = "generation_span", "playback_span"
"""Numbers read off, in s: from the talker's first step to its last frame; of playback with its pauses."""

_THINKER = {"color": SPEECH, "lw": 1.4, "ls": (0, (1, 1))}
_DELIVERED = {"color": INK, "lw": 0.9}
_HEARD = {"color": MUTED, "lw": 1.6, "ls": (0, (5, 2))}


def draw(run: Run) -> Picture | LeftOut:
    title = "Generation against playback of one long reply"
    if not run.spoken:
        return LeftOut(NAME, title, "no finished point has a spoken reply")
    if run.live:
        return LeftOut(NAME, title, "over sockets the times of generation are unknown")
    where = at(run, (), c=run.top, p=next(iter(run.interruptions), None))
    whole = shared_turns(run, where, COMPLETED)
    if not whole:
        return LeftOut(NAME, title, f"no reply at {setting(where)} was heard to its end in every variant")
    chosen = max(whole, key=_speech_s)
    figure, axes = sheet(len(run.variants), title, 3.5, sharex=True, sharey=True)
    look = looks(run.variants)
    read_off: dict[str, dict[Variant, float]] = {GENERATION: {}, PLAYBACK: {}}
    for (variant, style), panel in zip(look.items(), axes, strict=True):
        (turn,) = chosen.logs(variant, "turn_end_s")
        log = ReplyLog(turn, chosen.rows[variant])
        read_off[GENERATION][variant], read_off[PLAYBACK][variant] = (log.generation_span_s, log.playback_span_s)
        panel.fill_between(
            log.clock, log.generated(log.clock), log.played(log.clock), color=style.colour, alpha=0.15, lw=0
        )  # fmt: skip
        panel.step(*log.thinker, where="post", **_THINKER)
        panel.step(*log.delivered, where="post", **_DELIVERED)
        panel.step(*log.talker, where="post", color=style.colour, lw=1.6)
        panel.plot(log.clock, log.played(log.clock), **_HEARD)
        panel.set_title(variant.label, color=style.colour, weight="bold")
        panel.annotate(
            f"generation {log.generation_span_s:.1f} s\nplayback {log.playback_span_s:.1f} s",
            (0.97, 0.06), xycoords="axes fraction", ha="right", va="bottom", fontsize=9,
        )  # fmt: skip
        panel.set_xlabel("time since the user's turn ended, s")
    axes[0].set(ylabel="speech, s", xlim=(0, None), ylim=(0, None))
    legend(figure, *_legend(), ncols=5)
    caption = (
        "The shaded area is speech that is generated and not yet heard: an interruption would waste "
        "it. A curve above the dashed one is ahead of the listener; where they meet, the listener "
        "waits. Text counts as the speech it stands for. The reply is the longest that was heard to "
        f"its end in every variant: {chosen.name}, {_speech_s(chosen):.1f} s of speech, "
        f"{setting(where)}, seed {chosen.seed}; n = 1."
    )
    return Picture(NAME, title, figure, caption, read_off)


def _legend() -> list[Any]:
    return [
        line_handle(**_THINKER, label="thinker: text, as speech"),
        line_handle(color=MUTED, label="talker: codec frames"),
        line_handle(**_DELIVERED, label="delivered"),
        line_handle(**_HEARD, label="heard"),
        patch_handle(color=MUTED, alpha=0.2, label="generated, not yet heard"),
    ]


def _speech_s(turn: SharedTurn) -> float:
    """Seconds of speech in the whole reply, under the variant with the least."""
    return min(float(row["audio_s"]) for row in turn.rows.values())
