"""LiveServe on the testbeds on which the baseline is nearest to the paper's numbers, and each of its rules there.

The claims of the paper stand in the cards of their figures, with these testbeds as evidence (`chosen_testbeds`). The
table gives each of them as an interval over the testbeds, and our own claims on completed requests and the P90.

`python -m docs.testbed results/liveserve` prints the tables.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from harness.metrics.stats import across_seeds
from reports.claims.claim import Claim
from reports.claims.grading import summed_up
from reports.claims.quantities import Measure, Panels, Setting, largest, of, ratio, smallest, value
from reports.claims.stated import Number, claim, level, named
from reports.figures.forms import picture
from reports.figures.picture import LeftOut, paper_marker
from reports.figures.style import MUTED, engine_looks
from reports.papers.liveserve import fig11_left, fig11_right, fig12, fig13, fig16_left
from reports.papers.liveserve.chosen_testbeds import TESTBEDS, on, on_testbeds, over_testbeds
from reports.papers.liveserve.common import SHORTER
from reports.papers.liveserve.testbed import Testbed, loaded, table

TITLE = "LiveServe on the testbeds on which the baseline is nearest to the paper's numbers"

CS = {"p = 0": [8, 12, 16], "p = 0.5": [8, 12, 16], "p = 1": [8]}
"""Loads -> values of c."""

RULES: dict[str, dict[str, Any]] = {
    "strict precedence, await_text, pacing where users interrupt": {},
    "without await_text": {"await_text": False},
    "without pacing": {"pacing": "never"},
    "a lead of 2 s and 0.16 of what was heard": {"lead_cap_s": 2.0, "lead_growth": 0.16},
    "yielding": {"u2_mode": "yielding"},
    "yielding, without await_text": {"u2_mode": "yielding", "await_text": False},
    "Algorithm 1 with pacing": {"u2_mode": "work_conserving", "await_text": False, "pacing": "always"},
    "Algorithm 1 alone": {"u2_mode": "work_conserving", "await_text": False, "pacing": "never"},
}
"""Rules -> settings of LiveServe. The paper writes Algorithm 1 and strict precedence (section 4.2), and Fig. 15 right
shows pacing."""
RULES_CS = {"p = 0": [8, 16], "p = 0.5": [8], "p = 1": [8]}
"""Loads of the rules -> values of c."""

EXPERIMENTS = {panel: one for load, cs in CS.items() for panel, one in on_testbeds(load, cs).items()} | {
    f"{rule}; {testbed.label}; {load}": loaded(
        "testbed-rules", ["liveserve"], load, seeds=[0, 1, 2], c=cs, **testbed.settings, **changes
    )
    for rule, changes in RULES.items()
    for testbed in TESTBEDS
    for load, cs in RULES_CS.items()
}
QUICK = {"requests": "48", "c": "8,16"}

_AT = [(load, c) for load in ("p = 0", "p = 0.5") for c in CS[load]]


def _own(metric: str, text: str, worst: Callable[..., Measure], accepted: Number, why: str) -> dict[str, Claim]:
    """Claims of our own on LiveServe over the baseline, without interruptions and at p = 0.5, on the worst testbed."""

    def over(ours: Setting, baseline: Setting) -> Measure:
        return ratio(metric, ours, to=baseline)

    return {
        f"testbed-set-{metric}-{load.replace(' = ', '')}-c{c}": claim(
            f"(ours) {text}, {load}, c = {c}, on the worst testbed",
            accepted,
            worst(*(over(*on(testbed, load, c)) for testbed in TESTBEDS)),
            why,
            untold=over_testbeds(load, c, over),
        )
        for load, c in _AT
    }


CLAIMS = {
    **_own(
        "completed_rps",
        "completed requests per second over the baseline's",
        smallest,
        level((0.97, 20.0), "×", words="as many"),
        SHORTER,
    ),
    **_own(
        "audio_ttfp_p90",
        "P90 TTFP over the baseline's",
        largest,
        level((0.05, 1.0), "×", words="never above"),
        "a P90 of 65 turns is set by six of them, and single seeds differ by as much as the engines do",
    ),
}


def gains() -> list[Claim]:
    """The claims that are measured on the testbeds: the paper's in the order of their cards, then our own."""
    cards = (fig11_left, fig11_right, fig12, fig13, fig16_left)
    return [one for card in cards for one in named(card.CLAIMS) if _by_testbed(one)] + named(CLAIMS)


def _by_testbed(one: Claim) -> Mapping[str, Measure]:
    return one.untold.over if one.untold is not None else {}


def medians(one: Claim, panels: Panels) -> dict[str, float]:
    """Return label of a testbed -> our median over seeds, where it was measured."""
    found = {label: summed_up(one, measure(panels)).median for label, measure in _by_testbed(one).items()}
    return {label: median for label, median in found.items() if median is not None}


def in_band(one: Claim, by_testbed: Mapping[str, float]) -> str:
    """Return on how many testbeds our median lies in the band."""
    return f"{sum(map(one.accepts, by_testbed.values()))} of {len(by_testbed)}"


def _measured(panels: Panels) -> list[tuple[Claim, dict[str, float]]]:
    measured = [(one, medians(one, panels)) for one in gains()]
    return [(one, by_testbed) for one, by_testbed in measured if by_testbed]


def as_rows(panels: Panels) -> list[dict[str, Any]]:
    """The interval of each gain over the testbeds, as plain data."""
    return [
        {
            "id": one.id,
            "text": one.text,
            "paper": one.published,
            "band": one.band,
            "interval": (min(by_testbed.values()), max(by_testbed.values())),
            "by_testbed": by_testbed,
            "in_band": in_band(one, by_testbed),
        }
        for one, by_testbed in _measured(panels)
    ]


_QUANTITIES = {
    **{f"P{p} TTFP, c = 8, ×": (f"audio_ttfp_p{p}", "p = 0", 8) for p in (50, 90, 95)},
    "P90 TTFP, c = 16, ×": ("audio_ttfp_p90", "p = 0", 16),
    "continuity, c = 16": ("continuity", "p = 0", 16),
    "completed, c = 8, ×": ("completed_rps", "p = 0", 8),
    "completed, c = 16, ×": ("completed_rps", "p = 0", 16),
    "completed, c = 8, p = 0.5, ×": ("completed_rps", "p = 0.5", 8),
    "waste, p = 1": ("wasted_token_ratio", "p = 1", 8),
}
"""Quantity -> its metric, load and c; with × it is over the baseline's."""


def of_rules(panels: Panels) -> dict[str, dict[str, list[float]]]:
    """Return rule -> quantity -> LiveServe's median over seeds, of each testbed that was measured."""

    def on_testbed(rule: str, name: str, testbed: Testbed) -> float | None:
        metric, load, c = _QUANTITIES[name]
        ours, baseline = of(f"{rule}; {testbed.label}; {load}", "liveserve", c=c), on(testbed, load, c)[1]
        measure = ratio(metric, ours, to=baseline) if name.endswith("×") else value(metric, ours)
        return across_seeds(measure(panels)).median

    found = {
        rule: {name: [on_testbed(rule, name, testbed) for testbed in TESTBEDS] for name in _QUANTITIES}
        for rule in RULES
    }
    return {
        rule: {name: [each for each in medians if each is not None] for name, medians in by_name.items()}
        for rule, by_name in found.items()
    }


def as_markdown(panels: Panels) -> str:
    """The interval of each gain, and what each rule does, as two tables."""
    rows = [
        [rule, *("–" if not each else f"{min(each):.2f} to {max(each):.2f}" for each in by_name.values())]
        for rule, by_name in of_rules(panels).items()
    ]
    return f"{_gains_table(panels)}\n{table(['rules', *_QUANTITIES], rows)}"


def _gains_table(panels: Panels) -> str:
    return table(
        ["gain of LiveServe", "paper", f"ours, {len(TESTBEDS)} testbeds", "in the band"],
        [
            [one.text, one.published, one.write_range(min(ours.values()), max(ours.values())), in_band(one, ours)]
            for one, ours in _measured(panels)
        ],
    )


@picture(TITLE, 1, height_in=6.0)
def draw(panels: Panels, axes: Any) -> str | LeftOut:
    """Each gain over the paper's: a line over the testbeds, and the band."""
    numbers = [(one, ours) for one, ours in _measured(panels) if not one.sentence]
    if not numbers:
        return LeftOut("", TITLE, "no point of it is finished")
    look = engine_looks("liveserve")["liveserve"]
    for place, (one, ours) in enumerate(numbers):
        low, high = one.band
        axes.plot([0, 1], [place, place], color=MUTED, lw=6, alpha=0.4, solid_capstyle="butt")
        at = [(each - low) / (high - low) for each in ours.values()]
        axes.plot(at, [place] * len(at), **look.stroke, marker=look.marker)
        paper_marker(axes, (sum(one.range) / 2 - low) / (high - low), place, look)
    axes.set_yticks(range(len(numbers)), [one.text for one, _ in numbers], fontsize=7)
    axes.set(ylim=(len(numbers) - 0.5, -0.5), xlabel="place in the band of the paper's number (grey: 0 to 1)")
    return f"Medians over seeds on {len(TESTBEDS)} testbeds; the line joins them."
