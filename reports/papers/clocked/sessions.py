"""How many calls to PersonaPlex a GPU carries, and what a call is like at each number: vLLM-Omni's RFC 7389.

The RFC gives four ticks of a server in strict lockstep, and asks for what lies beyond. Two of them make a line, a fixed
part and one for each call, which says the other two. What a tick costs does not depend on what is said in it, so that a
user may begin to speak at any instant of a call that was run: `stop` and talk-over are over all of them. The model is
taken to fall silent in the very frame that hears the user. What it hesitates by itself comes on top, at every number.
"""

from itertools import combinations

from harness.metrics.frames import Beat
from reports.papers.prelude import *

TITLE = "Calls on a clock of 80 ms: ticks, late ones, stopping and talk-over by how many a GPU carries"

FRAME_S = 0.08
"""[published] Mimi's frame, Moshi's and PersonaPlex' step."""
DELAY_FRAMES = 1
"""[published] Acoustic codebooks come a step behind the semantic one: with the frame itself Moshi's 160 ms."""
INTERRUPTION_S = 2.0
"""[chosen] For which the user goes on; as long as an agent has to react (`harness.metrics.turn_taking_definitions`)."""
HELD = 0.01
"""[chosen] Share of late ticks above which so many calls are too many."""
SETTLING_S, LAST_S = 5.0, 10.0
"""[chosen] Begin and end of a call that nothing is read off: who interrupts then does not hear the end of it."""
PLACES = (0.125, 0.375, 0.625, 0.875)
"""Within a frame, where the user begins to speak."""

PUBLISHED_S = {2: 0.0280, 8: 0.0326, 16: 0.0450, 32: 0.0702}
"""Calls -> a tick. [published]"""
CALIBRATED = (8, 16)
"""The two in the middle, so that both others lie outside, as do the numbers of calls that are asked for."""

SERVER, KERNELS, RINGS = "PersonaPlex, published server", "Moshi, kernels alone", "full rings, a tenth"
ENGINE = "metronome"
SEEDS = [0, 1, 2]
SESSIONS = [2, 8, 16, 32, 34, 36, 38, 40]
CALLS: dict[str, Any] = {
    "deployment": "personaplex_h100",
    "duration_s": 40.0,
    "frame_s": FRAME_S,
    "window": 3000,
    "template_tokens": 0,
    "tokens_per_frame": 1.0,
    "frame_cv": 0.0,
    "session_cv": 0.0,
    "run_cv": 0.0,
    # The published ticks hold the whole server; a late one is caught up with, as there, and skips none.
    "step_rpc_s": 0.0,
    "feed_s": 0.0,
    "wait_scope": "session",
    "wait_cap": 0.99,
}
POOL_BLOCKS = 6270
"""Of `personaplex_h100`: 33 rings of 3000 steps."""


def _experiment(name: str, sessions: list[int], seeds: list[int], **changes: Any) -> Experiment:
    return Experiment(
        name=f"clocked-{name}",
        engines=[ENGINE],
        workload="metronome",
        set=CALLS | changes,
        grid={"sessions": sessions},
        seeds=seeds,
        timeout_s=900,
    )


EXPERIMENTS = {
    SERVER: _experiment("server", SESSIONS, SEEDS),
    KERNELS: _experiment(
        "kernels", [2, 8, 16, 32], [0], deployment="moshi_pro6000", gpu="h100", kv_pool_blocks=POOL_BLOCKS
    ),
    # Rings of 300 steps in a pool of as many of them: full after 24 s as the others after 240.
    RINGS: _experiment("rings", [32, 36], [0], window=300, kv_pool_blocks=660),
}
QUICK = {"sessions": "2,32", "duration_s": "20"}
PAPER: dict[int, float] = PUBLISHED_S


def line_through(pair: tuple[int, int]) -> Callable[[int], float]:
    """Seconds of a tick by the straight line through two of the published ones."""
    (few, few_s), (many, many_s) = ((n, PUBLISHED_S[n]) for n in pair)
    each_s = (many_s - few_s) / (many - few)
    return lambda calls: few_s + each_s * (calls - few)


def errors() -> dict[tuple[int, int], dict[int, float]]:
    """By every pair of published ticks: how far, as a share, the line through it misses each of the other two."""
    return {
        pair: {n: line_through(pair)(n) / s - 1 for n, s in PUBLISHED_S.items() if n not in pair}
        for pair in combinations(PUBLISHED_S, 2)
    }


class Heard(NamedTuple):
    """What calls heard, one row each: `late`: frames whose tick was; `stop_s`: until silence, for each of `PLACES`."""

    late: np.ndarray
    stop_s: np.ndarray


@cache
def heard(point: Measured) -> Heard:
    """What a run's users heard. A frame's answer is one token, so the n-th that came is that of the n-th frame."""
    trace = point.record.table("trace", columns=["session", "turn", "arrival_s", "network_s"])
    events = point.record.table("events", filters=[("kind", "==", "frame")])
    calls = []
    for session, frames in trace.sort_values(["session", "turn"]).groupby("session"):
        came = events.loc[events["session"] == session]
        times = np.repeat(came["t"].to_numpy(float), came["value"].to_numpy(int))[: len(frames)]
        arrive_s = np.append(times, np.full(len(frames) - times.size, np.inf))
        begin_s, network_s = (float(frames[name].iloc[0]) for name in ("arrival_s", "network_s"))
        calls.append(of_call(arrive_s, begin_s, network_s, point.params["duration_s"] - LAST_S))
    return Heard(np.concatenate([one.late for one in calls]), np.concatenate([one.stop_s for one in calls]))


def of_call(arrive_s: np.ndarray, begin_s: float, network_s: float, until_s: float) -> Heard:
    """A call that began at `begin_s`, whose frames' answers came at `arrive_s`; network delay each way. Who plays a
    frame waits for it and for the end of the one before."""
    ends_s = begin_s + FRAME_S * np.arange(1, arrive_s.size + 1)
    play_s = np.maximum.accumulate(arrive_s - ends_s) + ends_s
    tick_s = Beat(FRAME_S, FRAME_S, FRAME_S).next_s(np.zeros(ends_s.size), ends_s + network_s)
    spoken_s = ends_s[:, None] - FRAME_S * (1 - np.array(PLACES))
    counted = (ends_s > begin_s + SETTLING_S) & (ends_s < until_s)
    late = arrive_s > tick_s + FRAME_S + network_s + 1e-6
    return Heard(late[counted], (play_s[:, None] + DELAY_FRAMES * FRAME_S - spoken_s)[counted])


def tick(point: Measured) -> float | None:
    """Mean seconds of a step in which all are."""
    steps = point.record.table("steps", columns=["requests", "dt_s"])
    full = steps.loc[steps["requests"] == point.params["sessions"], "dt_s"]
    return float(full.mean()) if len(full) else None


def late(point: Measured) -> float | None:
    """Share of the frames whose answer left the server later than a frame after its tick."""
    found = heard(point).late
    return float(found.mean()) if found.size else None


def stop(percentile: float) -> Quantity:
    """A percentile, in s, of the time until silence; infinite where that never came."""

    def quantity(point: Measured) -> float | None:
        found = heard(point).stop_s
        return float(np.percentile(found, percentile, method="higher")) if found.size else None

    return quantity


def talk_over(point: Measured) -> float | None:
    """Share of an interruption through which the agent goes on."""
    found = heard(point).stop_s
    return float(np.minimum(found, INTERRUPTION_S).mean() / INTERRUPTION_S) if found.size else None


def carried(panels: Panels) -> Values:
    """The most calls, by seed, up to which no number that was tried had more late ticks than `HELD`; None where one of
    these was not measured."""
    run = panels.get(SERVER)
    found: Values = {}
    if run is None:
        return found
    for seed in sorted({point.seed for point in run.points}):
        found[seed] = 0.0
        for n in run.values("sessions"):
            (share,) = over_points(
                late, [p for p in of(SERVER, ENGINE, sessions=n).points(panels) if p.seed == seed]
            ).values()
            if share is None or share > HELD:
                found[seed] = None if share is None else found[seed]
                break
            found[seed] = float(n)
    return found


FITTED = "`step_time` of personaplex_h100 was fitted to it"
_FEW = (
    "a tick of two takes about as long to launch as one of eight, which no straight line knows: 8, 16 and 32 calls lie "
    "on one within 1 %, and 2 above it"
)
CLAIMS = [
    *(
        claim(
            f"sessions-tick-{n}",
            f"a tick of {n} calls",
            level(seconds, "ms", within=0.05 * seconds),
            value(tick, of(SERVER, ENGINE, sessions=n)),
            _FEW,
            calibrated=FITTED if n in CALIBRATED else "",
        )
        for n, seconds in PUBLISHED_S.items()
    ),
    claim(
        "sessions-served",
        "32 conversations at once on one GPU: share of late ticks",
        level(0.0, "%", within=HELD),
        value(late, of(SERVER, ENGINE, sessions=32)),
    ),
    claim(
        "sessions-carried",
        "(ours) the line meets the frame at 38.6 calls, and as ticks differ the most without late ones lie below that",
        level((32.0, 38.0)),
        carried,
    ),
]

SHOWN: dict[str, tuple[Quantity, float]] = {
    "tick, ms": (tick, 1000),
    "late ticks": (late, 0),
    "stop P50, ms": (stop(50), 1000),
    "stop P95, ms": (stop(95), 1000),
    "talk-over": (talk_over, 0),
}
"""Heading -> quantity and factor; 0: a share."""


def table(panels: Panels) -> list[list[str]]:
    """A number of calls a line: what was published of it and how it is used, then each quantity, medians over seeds."""
    lines = [["", "calls", "published tick, ms", *SHOWN, "preemptions"]]
    for panel, run in panels.items():
        for n in run.values("sessions"):
            points = of(panel, ENGINE, sessions=n).points(panels)
            published = _published(points, n) if panel == SERVER else "–"
            cells = [_written(spread(points, quantity), factor) for quantity, factor in SHOWN.values()]
            lines.append([panel, str(n), published, *cells, _written(spread(points, "preemptions"), 1)])
    return lines


def _published(points: Sequence[Measured], n: int) -> str:
    if n not in PUBLISHED_S:
        return "–"
    said = f"{1000 * PUBLISHED_S[n]:.1f}, "
    ours = spread(points, tick).median
    if n in CALIBRATED or ours is None:
        return said + "calibrated"
    return f"{said}predicted {100 * (ours / PUBLISHED_S[n] - 1):+.1f} %".replace("-", "−")


def _written(found: Spread, factor: float) -> str:
    if found.median is None or not np.isfinite(found.median):
        return "–" if found.median is None else "∞"
    return f"{factor * found.median:,.1f}" if factor else f"{100 * found.median:.1f} %"


def draw(panels: Mapping[str, Run], paper: Any) -> Picture | LeftOut:
    """Ticks, late ones, stopping and talk-over, over the number of calls."""
    shown = [panel for panel in (SERVER, KERNELS) if panel in panels]
    points = [point for panel in shown for point in panels[panel].points]
    if not finished(points):
        return LeftOut("sessions", TITLE, "no point of it is finished")
    figure, axes = sheet(2, 2, TITLE, 2.6, sharex=True)
    own: dict[str, Any] = dict(
        zip((SERVER, KERNELS), looks([Variant("vllm_omni"), Variant("liveserve")]).values(), strict=True)
    )
    drawn = [
        [("tick, ms", "")],
        [("late ticks", "")],
        [("stop P50, ms", ", P50"), ("stop P95, ms", ", P95")],
        [("talk-over", "")],
    ]
    for axis, quantities in zip(axes, drawn, strict=True):
        for panel in shown:
            for i, (name, suffix) in enumerate(quantities):
                quantity, factor = SHOWN[name]
                found = {
                    n: spread(of(panel, ENGINE, sessions=n).points(panels), quantity)
                    for n in panels[panel].values("sessions")
                }
                look = replace(own[panel], marker="^") if i else own[panel]
                line(
                    axis,
                    {
                        n: each
                        for n, each in found.items()
                        if each.median is not None and np.isfinite(each.median)
                    },
                    look,
                    panel + suffix,
                    factor or 1,
                )
        axis.set_title(quantities[0][0].replace(" P50", ""))
        axis.set_ylim(bottom=0)
    for n, seconds in paper.items():
        paper_marker(axes[0], n, 1000 * seconds, own[SERVER])
        how = "calibrated" if n in CALIBRATED else "predicted"
        axes[0].annotate(
            how, (n, 1000 * seconds), (4, -11), textcoords="offset points", fontsize=7, color=MUTED
        )
    axes[0].axhline(1000 * FRAME_S, color=MUTED, lw=0.9)
    for axis in (axes[1], axes[3]):
        in_per_cent(axis)
    for axis in axes[2:]:
        axis.set_xlabel("calls on the GPU")
    legend(figure, axes[2], paper_handle("published"))
    caption = (
        f"Calls of {points[0].params['duration_s']:g} s. The line is fitted to the published ticks of 8 and 16 calls "
        "and says those of 2 and 32; the grey one is the frame of 80 ms. Stop: from any instant at which a user may "
        "begin to speak over the agent, to the end of the frames that were said before it heard that. Talk-over: the "
        f"share of two seconds of interruption. {made_from(points, bars=True)}"
    )
    return Picture("sessions", TITLE, figure, caption)
