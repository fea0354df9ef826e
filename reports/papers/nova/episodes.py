"""Whole tasks of agents that act on what they see, a number of them at a time: a load that the paper has not.

Its requests come at a rate whatever the answers take. An agent's next screenshot is there only when its last action has
been carried out, so that a slow answer puts off all that follow. What is claimed is ours: no number is published.
"""

from reports.papers.nova.common import *

TITLE = "Agents at whole tasks, 1 to 16 at a time, CogAgent-9B on one RTX A6000 (not in the paper)"

AGENTS = (1, 2, 4, 8, 16)
SERVED, STATIC = "episodes", "fixed shares"
LOAD: dict[str, Any] = {
    "deployment": "cogagent_a6000",
    "episodes": 96,  # six for each of 16 agents
    "rate": 100.0,  # tasks are there from the start: an agent begins the next as it is done with one
    "scaffold_tokens": 90,
    "turn_timeout_s": 600.0,
}


def _experiment(name: str, engines: list[str], **more: Any) -> Experiment:
    return Experiment(
        name=f"nova-{name}",
        engines=engines,
        workload="gui_episodes",
        set=LOAD | more,
        grid={"c": list(AGENTS)},
        seeds=SEEDS,
        timeout_s=900,
    )


EXPERIMENTS = {
    SERVED: _experiment("episodes", [*BASELINES, OURS]),
    STATIC: _experiment(
        "episodes-fixed", [OURS], adaptive=False, decode_sms_vision=24, decode_sms_prefill=30
    ),
}
"""Fixed: the shares that the paper has for a load without a queue."""
QUICK = {"episodes": "32"}

PAPER: dict[str, float] = {}


def metric(name: str) -> Quantity:
    """A metric as the summary of a point has it."""
    return lambda point: point.value(name)


PACE, EPISODE_S = metric("session_pace_mean"), metric("session_time_mean")


def actions(point: Measured) -> float:
    """Counts the actions of all agents together, per minute, from the first screenshot to the last answer."""
    rows = point.requests
    return 60 * len(rows) / float(np.nanmax(rows["completion_s"]) - np.min(rows["turn_start_s"]))


def _at(agents: int, engine: str = OURS, panel: str = SERVED) -> Setting:
    return of(panel, engine, c=agents)


def _over(quantity: Quantity, agents: int, engine: str) -> Measure:
    """A baseline's over Nova's."""
    return quotient(value(quantity, _at(agents, engine)), value(quantity, _at(agents)))


def _lowest(quantity: Quantity, counts: tuple[int, ...]) -> Measure:
    return smallest(*(_over(quantity, agents, engine) for agents in counts for engine in BASELINES))


def _highest(quantity: Quantity, counts: tuple[int, ...], engines: tuple[str, ...] = BASELINES) -> Measure:
    return largest(*(_over(quantity, agents, engine) for agents in counts for engine in engines))


def _ours(id: str, text: str, number: Number, measure: Measure, why: str = "× {ours:.2f}") -> Claim:
    return claim(f"episodes-{id}", f"(ours) {text}", number, measure, why, remark="no published value")


FULL = "every action waits for vision and prefill, which limit every system"
ABOVE, ALIKE = times((1.001, 10.0), words="(ours) above 1"), level(1.0, "×", within=0.02, words="ours: 1")

CLAIMS = [
    _ours(
        "alone",
        "one agent by itself has nothing to run beside, so that only chunks take longer (highest time of an episode of "
        "Multi-Stream and PF-Limit over Nova's)",
        ALIKE,
        _highest(EPISODE_S, (1,), (LIMIT, STREAMS)),
    ),
    *(
        _ours(
            f"pace-{agents}",
            f"each of {agents} agents acts the most often with Nova (Nova's actions a minute over the best baseline's)",
            ABOVE,
            each(largest(*(_over(PACE, agents, engine) for engine in BASELINES)), lambda found: 1 / found),
            "× {ours:.2f}" + (f": {FULL}" if agents >= 8 else ""),
        )
        for agents in AGENTS[1:]
    ),
    _ours(
        "tbt",
        "no baseline has a lower time between tokens with 2 agents and more (lowest over Nova's)",
        ABOVE,
        _lowest(TBT, AGENTS[1:]),
    ),
    _ours(
        "static",
        "shares that follow the load finish episodes of 16 agents sooner than fixed ones (fixed over Nova's)",
        ABOVE,
        quotient(value(EPISODE_S, _at(16, OURS, STATIC)), value(EPISODE_S, _at(16))),
    ),
]


def draw(panels: Mapping[str, Run], paper: Any) -> Picture | LeftOut:
    """Five quantities over the number of agents, a line for each system."""
    shown: dict[str, tuple[Quantity, float]] = {
        "actions a minute, each": (PACE, 1.0),
        "actions a minute, all": (actions, 1.0),
        "time of an episode, s": (EPISODE_S, 1.0),
        "time to the first token, s": (TTFT, 1.0),
        "time between tokens, ms": (TBT, 1000.0),
    }
    systems = {engine: (engine, SERVED) for engine in (*BASELINES, OURS)} | {
        "nova, fixed shares": (OURS, STATIC)
    }
    styles = engine_looks(*systems)
    lines = [
        (label, styles[label], {agents: _at(agents, engine, panel) for agents in AGENTS})
        for label, (engine, panel) in systems.items()
    ]
    caption = (
        "Not in the paper: each agent's next screenshot follows its last action, and a pause of about 3 s."
    )
    return lines_over(TITLE, "agents at a time", lines, shown, panels, caption, base=2)
