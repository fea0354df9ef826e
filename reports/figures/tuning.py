"""What each ratio of alpha to beta cost in the offline sweep, stage by stage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rehearsal.engines.systems.liveserve.tuned import Tried
from rehearsal.reports.figures.drawing import legend, sheet
from rehearsal.reports.figures.picture import LeftOut, Picture
from rehearsal.reports.style import BROKEN, INK, MUTED

NAME = "tune"


def draw(tried: Sequence[Tried], best: Mapping[str, Tried | None]) -> Picture | LeftOut:
    """A panel for each stage: waste, stall and their sum over the ratio, the chosen one marked."""
    title = "Sweep of alpha and beta: waste and KV stall, each over its largest"
    stages = [stage for stage, chosen in best.items() if chosen is not None]
    if not stages:
        return LeftOut(NAME, title, "no point of the sweep was measured")
    figure, axes = sheet(1, len(stages), title, sharey=True)
    for stage, panel in zip(stages, axes, strict=True):
        rows = [each for each in tried if each.stage == stage]
        shown = [(x, each) for x, each in enumerate(rows) if each.cost is not None]
        most = {
            name: max(getattr(each, name) or 0.0 for each in rows)
            for name in ("wasted_token_ratio", "kv_stall_s")
        }
        for name, label, colour, mark in (
            ("wasted_token_ratio", "wasted tokens", BROKEN, "v"),
            ("kv_stall_s", "KV stall", MUTED, "s"),
        ):
            ys = [getattr(each, name) / most[name] if most[name] else 0.0 for _, each in shown]
            panel.plot([x for x, _ in shown], ys, color=colour, marker=mark, lw=1.4, label=label)
        panel.plot(
            [x for x, _ in shown], [each.cost or 0.0 for _, each in shown], color=INK, marker="o", label="sum"
        )
        x = next(x for x, each in shown if each == best[stage])
        panel.axvline(x, color=INK, lw=0.8, ls=(0, (2, 3)))
        panel.set_title(f"{stage}: alpha/beta = {rows[x].ratio}")
        panel.set_xticks(range(len(rows)), [each.ratio for each in rows])
        panel.set_xlabel("alpha / beta")
        panel.set_ylim(0, 2.1)
    legend(figure, axes[0])
    return Picture(NAME, title, figure, "Lower is better; the dotted line is the ratio that was chosen.")
