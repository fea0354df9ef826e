"""Testbeds: the settings that the paper leaves open, held against the numbers that it prints of its baseline.

A grid of one engine, the baseline, without LiveServe. A testbed is a server of a month, the size of the first packet,
the lengths of prompts and replies, how long a closed loop's slot is held, whether the server's host stalls, and what c
counts. It agrees with a number of the paper if ours lies in its band (`reports.claims.bands`). Ours are of one seed.

Axes that cost much are varied on a part of the others. c counts requests on one pair of thinker and talker, whose rates
are read in two ways: as those of the paper's server, or as those of one of its four pairs; or it counts requests on all
four pairs. The server of May without chunks (qwen3_omni_2gpu_may) is left out: its first packet is the whole reply.

`python -m docs.testbed results/liveserve` prints the table.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, replace
from functools import cache
from itertools import combinations
from typing import Any

from harness.experiments.experiment import Experiment
from reports.claims.bands import of_mean, of_model, of_percentile, of_share
from reports.claims.claim import Claim
from reports.claims.grading import summed_up
from reports.claims.quantities import Measure, Panels, Quantity, each, over_points
from reports.claims.stated import claim, level
from reports.figures.forms import picture
from reports.figures.picture import LeftOut
from reports.figures.style import BROKEN, INK, MUTED
from reports.papers.liveserve.common import BURSTS, LONG_REPLY, SHAREGPT, TTFP_SIGMA, TYPED_P90, N, experiment, of_reply
from reports.runs.measured import Measured, Run

TITLE = "Testbeds: settings with which the baseline has the paper's numbers"

BASELINE = "vllm_omni"
REQUESTS = 96
"""[chosen] six for each slot at c = 16."""
STALLS = 0.005
"""[chosen] share of steps before which the host stalls, for 0.2 s: one or two in 10 s of a talker's steps."""

PAIRS = {"April": "qwen3_omni_2gpu_april", "May": "qwen3_omni_2gpu_may_chunks", "June": "qwen3_omni_2gpu_june"}
SERVERS = {"May": "qwen3_omni_8gpu_may_chunks", "June": "qwen3_omni_8gpu"}
"""Month of vLLM-Omni -> its deployment on one pair of thinker and talker, and on four."""
_MONTHS = {name: month for by_month in (PAIRS, SERVERS) for month, name in by_month.items()}

AXES: dict[str, list[Any]] = {
    "deployment": list(PAIRS.values()),
    "first_chunk_frames": [10, 12, 14, 16, 18, 25],
    "prompt_tokens": [1000, 2500, 4000],
    "reply_tokens": [60, 140],
    "slot_until": ["stream"],
    "step_stall_chance": [0.0, STALLS],
}
PARTS: dict[str, dict[str, list[Any]]] = {
    "one pair": AXES,
    "one pair, slots until playback ends": {
        **AXES,
        "first_chunk_frames": [16, 25],
        "reply_tokens": [60],
        "slot_until": ["playback"],
        "step_stall_chance": [0.0],
    },
    "one pair, long replies": {
        **AXES,
        "deployment": [PAIRS["May"], PAIRS["June"]],
        "first_chunk_frames": [14, 16, 18, 25],
        "prompt_tokens": [2500],
        "reply_tokens": [300],
    },
    "four pairs": {
        **AXES,
        "deployment": list(SERVERS.values()),
        "first_chunk_frames": [10, 14, 18, 25],
        "step_stall_chance": [0.0],
    },
}
"""Parts of the grid -> values of each axis."""

LOADS: dict[str, tuple[str, dict[str, Any], list[int]]] = {
    "p = 0": ("sharegpt", {**SHAREGPT, "p": 0}, [8, 12, 16]),
    "p = 0.5": ("sharegpt", {**SHAREGPT, "p": 0.5}, [8]),
    "p = 1": ("sharegpt", {**SHAREGPT, "p": 1}, [8]),
    "bursts": ("burstgpt_fit", {**BURSTS, "p": 0, "peak_rate": 4.0, "peak_window_s": 5.0}, [8]),
}
"""Loads of a testbed -> workload, settings, values of c."""
ALONE = "one reply"
_ALONE: dict[str, Any] = {axis: AXES[axis] for axis in ("deployment", "step_stall_chance")}

_LOADED: dict[str, Any] = {"requests": REQUESTS, "c_scope": "deployment", "reply_sigma": 0.92, "max_reply_tokens": 1500}


def loaded(name: str, engines: Sequence[str], load: str, **changes: Any) -> Experiment:
    """Return the experiment of a load; `changes`: settings, and axes as lists of values."""
    workload, settings, cs = LOADS[load]
    changes = {"c": cs, **changes}
    fixed = {key: each for key, each in changes.items() if not isinstance(each, list)}
    axes: dict[str, Any] = {key: each for key, each in changes.items() if isinstance(each, list)}
    return experiment(name, engines, workload, {**settings, **_LOADED, **fixed}, **axes)


EXPERIMENTS = {
    f"{part}, {load}": loaded("testbed", [BASELINE], load, seeds=[0], **axes)
    for part, axes in PARTS.items()
    for load in LOADS
} | {ALONE: experiment("testbed-alone", [BASELINE], "sharegpt", LONG_REPLY, seeds=[0, 1, 2], **_ALONE)}
QUICK = {
    "requests": "48",
    "first_chunk_frames": "16",
    "prompt_tokens": "2500",
    "reply_tokens": "60",
    "step_stall_chance": "0",
}


@dataclass(frozen=True)
class Testbed:
    """One setting of all axes. `pairs`: pairs of thinker and talker for each one that is simulated, which its rates are
    multiplied with."""

    deployment: str
    first_chunk_frames: int
    prompt_tokens: float
    reply_tokens: float
    slot_until: str = "stream"
    step_stall_chance: float = 0.0
    pairs: int = 1

    @property
    def settings(self) -> dict[str, Any]:
        """Its value of each axis."""
        return {axis: getattr(self, axis) for axis in AXES}

    @property
    def load(self) -> str:
        """The pairs of thinker and talker on which c counts requests."""
        if self.deployment in SERVERS.values():
            return "all four pairs"
        return "each of four pairs" if self.pairs > 1 else "one pair"

    @property
    def label(self) -> str:
        return (
            f"{_MONTHS.get(self.deployment, self.deployment)}, {self.first_chunk_frames} frames, prompts "
            f"{self.prompt_tokens:g}, replies {self.reply_tokens:g}, slots until {self.slot_until}"
            f"{', stalls' if self.step_stall_chance else ''}, c on {self.load}"
        )

    @property
    def alone(self) -> dict[str, Any]:
        """Its settings that a single reply depends on: those of one pair."""
        month = _MONTHS.get(self.deployment, "")
        return {"deployment": PAIRS.get(month, self.deployment), "step_stall_chance": self.step_stall_chance}


_P90 = of_percentile(0.9, 32, TTFP_SIGMA, 0.01)
_RATE = of_mean(32, printed=0.01)
_UNPACED = of_model(0.03, "a device time, known within 3 % (docs/fidelity.md)")


def numbers(testbed: Testbed) -> dict[str, Claim]:
    """Return the paper's numbers of its baseline by a short name, each with the way to ours on this testbed.

    Under Poisson arrivals at 4 requests/s c binds, so the P90 TTFP and the rate are those of a closed loop. Where c
    counts requests on each of four pairs, bursts of 4 requests/s in all leave slots idle and are not measured. RTF
    is that without interruptions, which load the talker less.
    """

    def at(quantity: Quantity, run: str, c: int, factor: float = 1.0) -> Measure:
        measure = _measure(quantity, run, {**testbed.settings, "c": c})
        return measure if factor == 1.0 else each(measure, lambda number: factor * number)

    def ttfp(percentile: int, paper_s: float) -> Claim:
        band = of_percentile(percentile / 100, N, TTFP_SIGMA, 0.01)
        return claim(
            f"Fig. 11 left: P{percentile} TTFP at c = 8",
            level(paper_s, "s", within=band),
            at(f"audio_ttfp_p{percentile}", "p = 0", 8),
        )

    found = {
        "P50": ttfp(50, 0.86),
        "P90": ttfp(90, 1.38),
        "P95": ttfp(95, 1.45),
        "P90, Poisson": claim(
            "Fig. 12: P90 TTFP at c = 8, Poisson", level(1.13, "s", within=_P90), at("audio_ttfp_p90", "p = 0", 8)
        ),
        "P90, bursts": claim(
            "Fig. 12: P90 TTFP at c = 8, BurstGPT", level(1.63, "s", within=_P90), at("audio_ttfp_p90", "bursts", 8)
        ),
        "P90, p = 0.5": claim(
            "Fig. 15 left: P90 TTFP at c = 8, p = 0.5",
            level(1.54, "s", within=TYPED_P90),
            at("audio_ttfp_p90", "p = 0.5", 8),
        ),
        "continuity, 12": claim(
            "Fig. 11 right: continuity at c = 12",
            level(0.813, "%", within=of_share(0.813, N)),
            at("continuity", "p = 0", 12),
        ),
        "continuity, 16": claim(
            "Fig. 11 right: continuity at c = 16",
            level((0.703, 0.766), "%", within=of_share(0.703, N)),
            at("continuity", "p = 0", 16),
        ),
        "RTF": claim("Fig. 15 left: P90 RTF below 1, here at c = 16", level((0.0, 1.0)), at("rtf_p90", "p = 0", 16)),
        "waste": claim(
            "Fig. 16 left: wasted tokens at p = 1, c = 8",
            level(0.4406, "%", within=of_share(0.4406, N)),
            at("wasted_token_ratio", "p = 1", 8),
        ),
        "rate, Poisson": claim(
            "Fig. 12: effective RPS at c = 8, Poisson",
            level(0.82, "1/s", within=_RATE),
            at("effective_rps", "p = 0", 8, testbed.pairs),
        ),
        "rate, bursts": claim(
            "Fig. 12: effective RPS at c = 8, BurstGPT",
            level(0.96, "1/s", within=_RATE),
            at("effective_rps", "bursts", 8),
        ),
        "one reply": claim(
            "Fig. 15 right: 65.9 s of speech are generated in 8.2 s",
            level(8.2, "s", within=_UNPACED),
            _measure(_GENERATION, ALONE, testbed.alone),
        ),
    }
    if testbed.pairs > 1:
        found |= {name: replace(found[name], measure=_unmeasured) for name in ("P90, bursts", "rate, bursts")}
    return found


def _unmeasured(panels: Panels) -> dict[int, float | None]:
    return {}


_GENERATION = of_reply(lambda log: 65.9 * log.generated_by_s / log.delivered[1][-1])
"""Seconds until the generation of a reply as long as the paper's is complete, at the speed of ours."""


@dataclass(frozen=True)
class Result:
    """A testbed with our numbers (None: not measured) and their distances from the bands, in halves of a band."""

    testbed: Testbed
    values: Mapping[str, float | None]
    distances: Mapping[str, float]

    @property
    def met(self) -> list[str]:
        """The numbers of the paper that it agrees with."""
        return [name for name, distance in self.distances.items() if distance == 0]

    @property
    def missed(self) -> list[str]:
        return [name for name, distance in self.distances.items() if distance > 0]


def results(panels: Panels) -> list[Result]:
    """Return the measured testbeds by how many of the paper's numbers they meet, then by how few they miss, then by how
    near they are."""
    found = []
    for testbed in testbeds(panels):
        claims = numbers(testbed)
        values = {name: summed_up(one, one.measure(panels)).median for name, one in claims.items()}
        distances = {name: distance(claims[name], value) for name, value in values.items() if value is not None}
        found.append(Result(testbed, values, distances))
    return sorted(found, key=lambda one: (-len(one.met), len(one.missed), sum(one.distances.values())))


def testbeds(panels: Panels) -> Iterator[Testbed]:
    """The testbeds that were measured, each once."""
    seen = {}
    for panel, run in panels.items():
        if panel != ALONE:
            seen |= {key[:-1]: None for key in _by_settings(run, (*AXES, "c"))}
    for key in seen:
        testbed = Testbed(*key)
        yield testbed
        if testbed.deployment in PAIRS.values():
            yield replace(testbed, pairs=4)


def distance(one: Claim, value: float) -> float:
    """Return how far a value lies outside of a claim's band, in halves of the band; 0 inside."""
    low, high = one.band
    return max(0.0, low - value, value - high) / ((high - low) / 2)


def unmet(found: Iterable[Result]) -> dict[tuple[str, ...], Result]:
    """Return the numbers of the paper that no testbed meets, alone, and the pairs of others that none meets together,
    each with the nearest testbed."""
    found = list(found)
    names = list(dict.fromkeys(name for one in found for name in one.distances))
    alone = [name for name in names if not any(name in one.met for one in found)]
    pairs = combinations([name for name in names if name not in alone], 2)
    missing = {}
    for wanted in [*((name,) for name in alone), *pairs]:
        measured = [one for one in found if all(name in one.distances for name in wanted)]
        nearest = min(measured, key=lambda one: max(one.distances[name] for name in wanted), default=None)
        if nearest is not None and not all(name in nearest.met for name in wanted):
            missing[wanted] = nearest
    return missing


def _measure(quantity: Quantity, run: str, settings: Mapping[str, Any]) -> Measure:
    """Return the quantity at these settings, in whichever panel of this load has them."""

    def measure(panels: Panels) -> dict[int, float | None]:
        for panel, one in panels.items():
            if panel == run or panel.endswith(f", {run}"):
                points = _by_settings(one, tuple(settings)).get(tuple(settings.values()))
                if points:
                    return over_points(quantity, points)
        return {}

    return measure


_UNSET = {field.name: field.default for field in fields(Testbed) if field.default is not MISSING}
"""Values of parameters that a point stores only where they are not these."""


@cache
def _by_settings(run: Run, names: tuple[str, ...]) -> dict[tuple[Any, ...], list[Measured]]:
    """Return the points of a run by their values of these parameters."""
    by_settings: dict[tuple[Any, ...], list[Measured]] = {}
    for point in run.points:
        values = tuple(point.params.get(name, _UNSET.get(name)) for name in names)
        by_settings.setdefault(values, []).append(point)
    return by_settings


SHOWN = 20
"""[chosen] testbeds in the picture."""


@picture(TITLE, 1, height_in=7.0)
def draw(panels: Panels, axes: Any) -> str | LeftOut:
    """A table: the testbeds that agree with most numbers, and whether each number lies in its band."""
    found = results(panels)
    if not any(one.distances for one in found):
        return LeftOut("", TITLE, "no point of it is finished")
    shown, claims = found[:SHOWN], numbers(found[0].testbed)
    for row, one in enumerate(shown):
        for column, name in enumerate(claims):
            value = one.values[name]
            if value is None:
                continue
            inside = one.distances[name] == 0
            axes.text(
                column,
                row,
                claims[name].write(value).split(" ")[0],
                ha="center",
                va="center",
                fontsize=6,
                color=INK if inside else BROKEN,
                weight="bold" if inside else "normal",
            )
    axes.plot([], [], color=INK, label="in the band of the paper's number")
    axes.plot([], [], color=BROKEN, label="outside")
    heads = [f"{name}\n{one.published}" for name, one in claims.items()]
    axes.set_xticks(range(len(heads)), heads, rotation=60, ha="left", rotation_mode="anchor", fontsize=6)
    axes.xaxis.tick_top()
    axes.set_yticks(range(len(shown)), [one.testbed.label for one in shown], fontsize=6)
    axes.hlines([row + 0.5 for row in range(len(shown))], -0.5, len(claims) - 0.5, color=MUTED, lw=0.3)
    axes.set(xlim=(-0.5, len(claims) - 0.5), ylim=(len(shown) - 0.5, -0.5))
    best = found[0]
    return (
        f"{len(found)} testbeds; the first of {len(shown)} shown misses {len(best.missed)} of the "
        f"{len(best.distances)} numbers that were measured on it. {_no_testbed(found)}"
    )


def _no_testbed(found: Sequence[Result]) -> str:
    missing = unmet(found)
    alone = [names[0] for names in missing if len(names) == 1]
    pairs = [" with ".join(names) for names in missing if len(names) > 1]
    said = []
    if alone:
        said.append(f"No testbed meets {', '.join(alone)}.")
    if pairs:
        said.append(f"No testbed meets together: {'; '.join(pairs)}.")
    return " ".join(said) or "Each pair of the numbers is met together by some testbed."


def as_rows(panels: Panels) -> dict[str, Any]:
    """The whole table and what no testbed meets, as plain data."""
    found = results(panels)
    return {
        "numbers": [
            {"name": name, "paper": one.published, "band": one.band, "text": one.text}
            for name, one in (numbers(found[0].testbed) if found else {}).items()
        ],
        "testbeds": [
            {
                "label": one.testbed.label,
                "settings": one.testbed.settings,
                "pairs": one.testbed.pairs,
                "met": one.met,
                "missed": one.missed,
                "values": dict(one.values),
            }
            for one in found
        ],
        "unmet": [
            {"numbers": names, "nearest": one.testbed.label, "values": {n: one.values[n] for n in names}}
            for names, one in unmet(found).items()
        ],
    }


def as_markdown(panels: Panels, most: int = SHOWN) -> str:
    """The first `most` testbeds and what no testbed meets, as two tables."""
    found = results(panels)
    if not found:
        return ""
    claims = numbers(found[0].testbed)
    rows = [["paper", "", *(one.published for one in claims.values())]]
    for one in found[:most]:
        cells = [_cell(claims[name], one.values[name], one.distances.get(name)) for name in claims]
        rows.append([one.testbed.label, f"{len(one.met)} of {len(one.distances)}", *cells])
    missing = []
    for names, one in unmet(found).items():
        ours = ", ".join(_cell(claims[name], one.values[name], one.distances[name]) for name in names)
        missing.append([" with ".join(names), one.testbed.label, ours])
    return "\n".join(
        [
            table(["testbed", "met", *claims], rows),
            "In bold: in the band of the paper's number.\n",
            table(["numbers that no testbed meets", "nearest testbed", "ours"], missing),
        ]
    )


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table of Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _cell(one: Claim, value: float | None, away: float | None) -> str:
    if value is None:
        return "–"
    return f"**{one.write(value)}**" if away == 0 else one.write(value)
