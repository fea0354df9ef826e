"""LiveServe on the testbeds with which the baseline has the paper's numbers: an interval over testbeds.

The testbeds, `MEMBERS`, were found with the baseline alone (card `liveserve-testbed`), so LiveServe's gains on them are
predictions given the baseline. The axes themselves were found with LiveServe's results in view. A gain that lies in its
band on some testbeds and not on others cannot be told.

`python -m docs.testbed results/liveserve` prints the table.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.metrics.stats import across_seeds
from reports.claims.bands import of_mean, of_percentile, of_share
from reports.claims.claim import Claim
from reports.claims.grading import summed_up
from reports.claims.quantities import Panels, Setting, change, difference, of, ratio, value
from reports.claims.stated import claim, level, moves, times
from reports.figures.forms import picture
from reports.figures.picture import LeftOut, paper_marker
from reports.figures.style import MUTED, engine_looks
from reports.papers.liveserve.common import PAIR, RPS, TTFP_SIGMA, N
from reports.papers.liveserve.testbed import STALLS, Testbed, loaded, table

TITLE = "LiveServe on the testbeds with which the baseline has the paper's numbers"

MEMBERS = [
    Testbed("qwen3_omni_2gpu_may_chunks", 18, 1000, 60, step_stall_chance=STALLS),
    Testbed("qwen3_omni_2gpu_may_chunks", 16, 2500, 140, step_stall_chance=STALLS),
    Testbed("qwen3_omni_2gpu_april", 25, 4000, 140, step_stall_chance=STALLS),
    Testbed("qwen3_omni_2gpu_june", 18, 2500, 60, step_stall_chance=STALLS),
]
"""The set. No testbed meets every number, so these are the nearest: the one that meets the TTFPs of Fig. 11 left and
both shares of Fig. 11 right (of twelve numbers it misses the P90s under bursts and at p = 0.5, the rate, and the one
reply), then of each month the one that meets most. Chosen by the baseline alone."""

CS = {"p = 0": [8, 12, 16], "p = 0.5": [8, 12, 16], "p = 1": [8]}
"""Loads -> values of c."""

RULES: dict[str, dict[str, Any]] = {
    "all rules (default)": {},
    "without await_text": {"await_text": False},
    "u2_mode=yielding": {"u2_mode": "yielding"},
    "no pacing": {"pacing": "never"},
    "a lead of 2 s + 0.16 of what was heard": {"lead_cap_s": 2.0, "lead_growth": 0.16},
    "Algorithm 1 with pacing": {"u2_mode": "work_conserving", "await_text": False, "pacing": "always"},
    "Algorithm 1 alone": {"u2_mode": "work_conserving", "await_text": False, "pacing": "never"},
}
"""Rules -> settings of LiveServe, on the nearest testbed. Algorithm 1 and the pacing of section 4.1 are what the paper
writes down; strict precedence is its section 4.2."""

EXPERIMENTS = {
    f"{member.label}; {load}": loaded("testbed-set", PAIR, load, c=cs, **member.settings)
    for member in MEMBERS
    for load, cs in CS.items()
} | {
    f"{rule}; {load}": loaded("testbed-rules", ["liveserve"], load, c=cs, **MEMBERS[0].settings, **changes)
    for rule, changes in RULES.items()
    for load, cs in CS.items()
}
QUICK = {"requests": "48", "c": "8,16"}


def gains(member: Testbed) -> dict[str, Claim]:
    """Return the paper's gains of LiveServe by id, and further ones, each with the way to ours on this testbed."""

    def both(load: str, c: int) -> tuple[Setting, Setting]:
        panel = f"{member.label}; {load}"
        return of(panel, "liveserve", c=c), of(panel, "vllm_omni", c=c)

    def over(metric: str, load: str, c: int) -> Any:
        ours, baseline = both(load, c)
        return ratio(metric, ours, to=baseline)

    def more(c: int) -> Any:
        ours, baseline = both("p = 0", c)
        return difference("continuity", ours, less=baseline)

    cut, waste = both("p = 1", 8), of_share(0.1238, N)
    found = {
        f"p{percentile}": claim(
            f"Fig. 11 left: P{percentile} TTFP at c = 8, over the baseline's",
            times(after / before, within=of_percentile(percentile / 100, N, TTFP_SIGMA, 0.01)),
            over(f"audio_ttfp_p{percentile}", "p = 0", 8),
        )
        for percentile, before, after in ((50, 0.86, 0.53), (90, 1.38, 0.84), (95, 1.45, 0.92))
    } | {
        "continuity-c12": claim(
            "Fig. 11 right: continuity at c = 12 above the baseline's",
            moves(0.918 - 0.813, within=of_share(0.813, N)),
            more(12),
        ),
        "continuity-c16": claim(
            "Fig. 11 right: continuity at c = 16 above the baseline's",
            moves((0.875 - 0.766, 0.875 - 0.703), within=of_share(0.703, N)),
            more(16),
        ),
        "unbroken-p0-c8": claim(
            "Fig. 12: replies without a gap per second at c = 8, Poisson",
            times(1.18 / 0.82, within=of_mean(32, printed=0.01)),
            over("effective_rps", "p = 0", 8),
        ),
        "unbroken-p0.5-c8": claim(
            "Fig. 13: replies without a gap per second at c = 8, p = 0.5",
            times(2.6, within=RPS),
            over("effective_rps", "p = 0.5", 8),
        ),
        "waste": claim(
            "Fig. 16 left: wasted tokens at p = 1, c = 8",
            level(0.1238, "%", within=waste),
            value("wasted_token_ratio", cut[0]),
        ),
        "waste-cut": claim(
            "the same, less than the baseline's",
            moves(0.1238 / 0.4406 - 1, within=waste.over(0.1238)),
            change("wasted_token_ratio", *cut),
        ),
        "waste-frames-cut": claim(
            "wasted frames alone, less than the baseline's",
            moves(0.1238 / 0.4406 - 1, within=waste.over(0.1238)),
            change("wasted_token_ratio_talker", *cut),
        ),
    }
    for load in ("p = 0", "p = 0.5"):
        for c in CS[load]:
            at, short = f"at c = {c}, {load}", f"{load.replace(' = ', '')}-c{c}"
            found.setdefault(
                f"unbroken-{short}",
                claim(
                    f"replies without a gap per second {at}",
                    level((1.0, 20.0), "×", words="more"),
                    over("effective_rps", load, c),
                ),
            )
            found[f"completed-{short}"] = claim(
                f"completed requests per second {at}",
                level((0.97, 20.0), "×", words="as many or more"),
                over("completed_rps", load, c),
            )
            found[f"p90-{short}"] = claim(
                f"P90 TTFP {at}, over the baseline's",
                level((0.05, 1.0), "×", words="never above"),
                over("audio_ttfp_p90", load, c),
            )
    return {f"testbed-set-{name}": one for name, one in found.items()}


def medians(panels: Panels) -> dict[str, dict[str, float]]:
    """Return gain -> label of a testbed -> our median over seeds, where it was measured."""
    found: dict[str, dict[str, float]] = {}
    for member in MEMBERS:
        for name, one in gains(member).items():
            median = summed_up(one, one.measure(panels)).median
            if median is not None:
                found.setdefault(name, {})[member.label] = median
    return found


def in_band(one: Claim, by_member: Mapping[str, float]) -> str:
    """Return whether the paper's number lies in its band on every testbed, on none, or cannot be told."""
    inside = {one.accepts(ours) for ours in by_member.values()}
    return "cannot be told" if len(inside) > 1 else "yes" if inside == {True} else "no"


def as_rows(panels: Panels) -> list[dict[str, Any]]:
    """The interval of each gain over the testbeds, as plain data."""
    claims = gains(MEMBERS[0])
    return [
        {
            "id": name,
            "text": claims[name].text,
            "paper": claims[name].published,
            "band": claims[name].band,
            "interval": (min(by_member.values()), max(by_member.values())),
            "by_testbed": by_member,
            "in_band": in_band(claims[name], by_member),
        }
        for name, by_member in medians(panels).items()
    ]


def of_rules(panels: Panels) -> dict[str, dict[str, float | None]]:
    """Return rule -> quantity -> LiveServe's median over seeds with it, over the baseline's on the same testbed."""

    def over(metric: str, rule: str, load: str, c: int) -> float | None:
        ours, base = (
            of(f"{rule}; {load}", "liveserve", c=c),
            of(f"{MEMBERS[0].label}; {load}", "vllm_omni", c=c),
        )
        return across_seeds(ratio(metric, ours, to=base)(panels)).median

    def own(metric: str, rule: str, load: str, c: int) -> float | None:
        return across_seeds(value(metric, of(f"{rule}; {load}", "liveserve", c=c))(panels)).median

    return {
        rule: {
            **{f"P{p} TTFP, c = 8, ×": over(f"audio_ttfp_p{p}", rule, "p = 0", 8) for p in (50, 90, 95)},
            "P90 TTFP, c = 16, ×": over("audio_ttfp_p90", rule, "p = 0", 16),
            "continuity, c = 16": own("continuity", rule, "p = 0", 16),
            "completed, c = 8, ×": over("completed_rps", rule, "p = 0", 8),
            "completed, c = 16, ×": over("completed_rps", rule, "p = 0", 16),
            "completed, c = 8, p = 0.5, ×": over("completed_rps", rule, "p = 0.5", 8),
            "waste, p = 1": own("wasted_token_ratio", rule, "p = 1", 8),
        }
        for rule in RULES
    }


def as_markdown(panels: Panels) -> str:
    """The interval of each gain, and what each rule does, as two tables."""
    rules = of_rules(panels)
    heads = list(next(iter(rules.values())))
    rows = [
        [rule, *("–" if each is None else f"{each:.2f}" for each in by_name.values())]
        for rule, by_name in rules.items()
    ]
    return f"{_gains_table(panels)}\n{table(['rules', *heads], rows)}"


def _gains_table(panels: Panels) -> str:
    claims, found = gains(MEMBERS[0]), medians(panels)
    return table(
        ["gain of LiveServe", "paper", f"ours, {len(MEMBERS)} testbeds", "in the band"],
        [
            [
                claims[name].text,
                claims[name].published,
                claims[name].write_range(min(ours.values()), max(ours.values())),
                in_band(claims[name], ours),
            ]
            for name, ours in found.items()
        ],
    )


@picture(TITLE, 1, height_in=6.0)
def draw(panels: Panels, axes: Any) -> str | LeftOut:
    """Each gain over the paper's: a line over the testbeds, and the band."""
    claims, found = gains(MEMBERS[0]), medians(panels)
    numbers = {name: ours for name, ours in found.items() if not claims[name].sentence}
    if not numbers:
        return LeftOut("", TITLE, "no point of it is finished")
    look = engine_looks("liveserve")["liveserve"]
    for place, (name, ours) in enumerate(numbers.items()):
        one = claims[name]
        low, high = one.band
        axes.plot([0, 1], [place, place], color=MUTED, lw=6, alpha=0.4, solid_capstyle="butt")
        at = [(each - low) / (high - low) for each in ours.values()]
        axes.plot(at, [place] * len(at), **look.stroke, marker=look.marker)
        middle = sum(one.range) / 2
        paper_marker(axes, (middle - low) / (high - low), place, look)
    axes.set_yticks(range(len(numbers)), [claims[name].text for name in numbers], fontsize=7)
    axes.set(ylim=(len(numbers) - 0.5, -0.5), xlabel="place in the band of the paper's number (grey: 0 to 1)")
    return f"Medians over seeds on {len(MEMBERS)} testbeds; the line joins them."
