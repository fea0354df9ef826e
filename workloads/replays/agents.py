"""Recorded jobs of agents: steps, each a request to a model, with gaps between them in which tools run.

The files of others are read by `workloads.replays.tracelab`, `.weka` and `.otel`; what they have in common is here. A
step begins when the steps it depends on have ended and the recorded gap has passed. So a slow server delays all later
steps, and a server that takes no time leaves only the tools' time.

Dependencies are inferred from times: a step depends on the steps that had ended when it began, without those implied
by later ones. This finds fan-out and join. It considers the steps of its own agent, and each called agent as a whole.
The first step of a called agent depends on the last step of its caller that had begun.

A session is a chain of steps with one context. A step of an agent that began before the previous one had ended
belongs to another, parallel chain. Where blocks of prompts are known, so is one that shares less than half of them
with any chain that is free, as a request of another kind in between.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
from pydantic import Field

from workloads.columns.jobs import OWN, Waits, starts, written
from workloads.distributions import arrivals, speech
from workloads.errors import UserError
from workloads.files.reading import say
from workloads.seeds import Streams
from workloads.trace import Trace
from workloads.workload_params import UserParams

CONTINUES = 0.5
"""[chosen] Share of a prompt's blocks that the next prompt of the same agent has at least."""
_EPSILON_S = 1e-6


class JobParams(UserParams):
    """Parameters of a replay of recorded jobs: selection and arrivals."""

    path: Path = Field(description="the file to replay")
    limit: int | None = Field(None, ge=1, le=1_000_000_000, description="replay only the first N jobs")
    skip_bad: bool = Field(False, description="leave out jobs with a fault, and note how many")
    rate: float | None = Field(
        None,
        ge=1e-6,
        le=1e6,
        description="jobs that come per second, Poisson; default: as recorded, or where no dates are, all at once",
    )
    max_gap_s: float | None = Field(
        None, ge=0, le=1e7, description="gaps are cut to so much, people's too, s; default: as recorded"
    )
    max_context: int | None = Field(
        None, ge=2, le=10_000_000, description="leave out jobs with a prompt and reply of more tokens; default: none"
    )


@dataclass(slots=True)
class Step:
    """One request. Times in s, on any clock of its job.

    input_tokens  the whole prompt; cached: so much of it came before, inf: as much as can have
    blocks        ids of the prompt's whole blocks: equal ids, equal content up to there; None: not known
    text          what its first prompt begins with if it begins an agent: equal text, equal tokens
    """

    begin_s: float
    end_s: float
    input_tokens: int
    output_tokens: int
    text: str
    cached: float = math.inf
    blocks: list[int] | None = None

    def shares(self, before: Step) -> int:
        """Return the number of first blocks that it shares with `before`."""
        earlier, blocks = before.blocks or [], self.blocks or []
        most = min(len(earlier), len(blocks))
        if not most or earlier[0] != blocks[0]:
            return 0
        if earlier[:most] == blocks[:most]:
            return most
        alike, unlike = 1, most
        while unlike - alike > 1:
            middle = (alike + unlike) // 2
            alike, unlike = (middle, unlike) if earlier[:middle] == blocks[:middle] else (alike, middle)
        return alike

    def continues(self, before: Step) -> int:
        """Return how well it continues the other; 0: not at all."""
        if before.end_s > self.begin_s + _EPSILON_S:
            return 0
        if self.blocks is None or not before.blocks:
            return 1
        shared = self.shares(before)
        return shared if shared >= CONTINUES * len(before.blocks) else 0


@dataclass(slots=True)
class Agent:
    """The steps of one agent in any order; `parent`: place of the calling agent among those of the job, None: the
    main one."""

    steps: list[Step]
    parent: int | None = None


@dataclass
class Job:
    """The main agent first. `block`: tokens of a block; `come_s`: when it came, s since 1970, None: not recorded."""

    agents: list[Agent]
    block: int = 0
    come_s: float | None = None


@dataclass(slots=True)
class Chain:
    """A chain, which becomes a session: steps of one agent, by its place in the job."""

    agent: int
    steps: list[Step]


@dataclass
class Rows:
    """The rows of a trace being built, and the recorded begin and end of each, s."""

    columns: dict[str, list[Any]] = field(default_factory=dict)
    begin_s: list[float] = field(default_factory=list)
    end_s: list[float] = field(default_factory=list)
    sessions: int = 0

    def add(self, job: Job) -> None:
        chains = _chains(job)
        before = _depends(job, chains)
        for place, chain in enumerate(chains):
            for turn, step in enumerate(chain.steps):
                waits = [link for link in before[place, turn] if link != (place, turn - 1)]
                if turn:
                    prefix, kept = OWN, _kept(chain.steps[turn - 1], step, job.block)
                else:
                    waits, prefix, kept = _first(place, chains, waits, job.block)
                kept, calls = min(kept, step.input_tokens - 1), place > 0 and not turn
                row = {
                    "session": self.sessions + place,
                    "turn": turn,
                    "input_tokens": step.input_tokens - kept,
                    "history_tokens": kept,
                    "output_tokens": step.output_tokens,
                    "prefix": prefix if kept or turn else math.nan,
                    "waits": written([(other - place, later) for other, later in waits]) if waits or calls else "",
                }
                for name, value in row.items():
                    self.columns.setdefault(name, []).append(value)
                self.begin_s.append(step.begin_s)
                self.end_s.append(step.end_s)
        self.sessions += len(chains)


def replay_jobs(
    generator: str, jobs: Iterable[Job | UserError], params: JobParams, seed: int, notes: Callable[[], Sequence[str]]
) -> Trace:
    """Return the trace of recorded jobs; a UserError in the place of a job describes its fault. `notes`: called for
    notes after the last job. Jobs are read one by one, because all their blocks would not fit into memory."""
    streams, rows, come_s, left_out = Streams(seed), Rows(), list[float | None](), dict[str, int]()
    for job in islice(_good(jobs, params, left_out), params.limit):
        rows.add(job)
        come_s.append(job.come_s)
    if not come_s:
        why = "; ".join(f"{n} {what}" for what, n in left_out.items()) or "it has none with tokens"
        raise UserError(f"{params.path}: no job is left ({why}); give a file with others, or change that limit.")
    columns = {name: np.array(values) for name, values in rows.columns.items()}
    comes = starts(columns)
    of_job = np.cumsum(comes) - 1
    begin_s, end_s = np.array(rows.begin_s), np.array(rows.end_s)
    gap_s = _gaps(Waits.of(columns | {"think_s": np.zeros(len(comes))}).before, begin_s, end_s, begin_s[comes][of_job])
    cut_s = gap_s if params.max_gap_s is None else np.minimum(gap_s, params.max_gap_s)
    arrival_s = _arrivals(come_s, params, streams)[of_job]
    columns |= {
        "think_s": np.where(comes, np.nan, cut_s),
        "arrival_s": np.where(columns["turn"] == 0, arrival_s, np.nan),
    }
    span_s, uncut_s, short_s = np.full((3, len(come_s)), -np.inf)
    np.maximum.at(span_s, of_job, end_s)
    for most_s, gaps in ((uncut_s, gap_s), (short_s, cut_s)):
        waits = Waits.of(columns | {"think_s": gaps})
        np.maximum.at(most_s, of_job, waits.ends(np.zeros(len(comes)), end_s - begin_s))
    recorded_s = span_s - begin_s[comes] - (uncut_s - short_s)
    columns["recorded_s"] = np.where(comes, recorded_s[of_job], np.nan)
    delays = speech.network_delays(streams("jitter"), params.network_ms, len(come_s))
    summary = [f"{len(come_s)} jobs, {len(comes)} steps, {rows.sessions - len(come_s)} further chains"]
    summary += [f"{n} jobs left out: {what}" for what, n in left_out.items()]
    cut = int(np.sum(gap_s > cut_s))
    if cut:
        summary.append(f"{cut} gaps cut to {params.max_gap_s:g} s, {np.sum(gap_s - cut_s):.6g} s in all")
    summary += notes()
    say(params.path, summary)
    return Trace.made(generator, params, streams, columns | {"modality": "text", "network_s": delays[of_job]}, summary)


def _good(jobs: Iterable[Job | UserError], params: JobParams, left_out: dict[str, int]) -> Iterable[Job]:
    """Jobs of steps that were answered, within the limits of the parameters."""

    def leave(what: str) -> None:
        left_out[what] = left_out.get(what, 0) + 1

    for job in jobs:
        if isinstance(job, UserError):
            if not params.skip_bad:
                raise job
            leave("with a fault")
            continue
        for agent in job.agents:
            agent.steps = sorted(
                (step for step in agent.steps if step.input_tokens and step.output_tokens),
                key=lambda step: (step.begin_s, step.end_s),
            )
        if not any(agent.steps for agent in job.agents):
            leave("without a request that was answered")
        elif params.max_context is not None and params.max_context < max(
            step.input_tokens + step.output_tokens for agent in job.agents for step in agent.steps
        ):
            leave(f"with more than {params.max_context} tokens at once")
        else:
            yield job


def _chains(job: Job) -> list[Chain]:
    """Return the first chain, then those of each agent in the order of their begins."""
    chains: list[Chain] = []
    for place, agent in enumerate(job.agents):
        of_agent: list[Chain] = []
        for step in agent.steps:
            best = max(of_agent, key=lambda chain: step.continues(chain.steps[-1]), default=None)
            if best is not None and step.continues(best.steps[-1]):
                best.steps.append(step)
            else:
                of_agent.append(Chain(place, [step]))
        chains += of_agent
    first = min(chains, key=lambda chain: chain.steps[0].begin_s)
    return [first, *(chain for chain in chains if chain is not first)]


Turn = tuple[int, int]
"""Place of a chain in its job, and of a step in the chain."""


def _depends(job: Job, chains: Sequence[Chain]) -> dict[Turn, list[Turn]]:
    of_agent: dict[int, list[tuple[float, float, Turn]]] = {place: [] for place in range(len(job.agents))}
    for place, chain in enumerate(chains):
        of_agent[chain.agent] += [(s.begin_s, s.end_s, (place, turn)) for turn, s in enumerate(chain.steps)]
    seen = {place: sorted(steps) for place, steps in of_agent.items()}
    for place in reversed(range(1, len(job.agents))):  # as a whole, with the agents that it has called itself
        inside, caller = seen[place], job.agents[place].parent
        assert caller is not None and caller < place, "an agent stands behind the one that calls it"
        if inside:
            last = max(inside, key=lambda span: span[1])
            seen[caller] = sorted([*seen[caller], (inside[0][0], last[1], last[2])])
    depends: dict[Turn, list[Turn]] = {}
    for place, agent in enumerate(job.agents):
        begin_s, end_s = (np.array([span[i] for span in seen[place]]) for i in (0, 1))
        for index, (begun_s, _, turn) in enumerate(seen[place]):
            if chains[turn[0]].agent != place:
                continue  # an agent that was called
            ended = end_s[:index] <= begun_s + _EPSILON_S
            if ended.any():
                latest = np.flatnonzero(ended & (end_s[:index] >= begin_s[:index][ended].max()))
                depends[turn] = [seen[place][i][2] for i in latest]
            else:
                depends[turn] = _caller(agent.parent, begun_s, job, of_agent)
    return depends


def _caller(
    parent: int | None, begun_s: float, job: Job, of_agent: Mapping[int, Sequence[tuple[float, float, Turn]]]
) -> list[Turn]:
    """Return the last earlier step of the calling agent; none if the job begins with the called one."""
    while parent is not None and not of_agent[parent]:
        parent = job.agents[parent].parent
    if parent is None:
        return []
    return [span[2] for span in sorted(of_agent[parent]) if span[0] < begun_s][-1:]


def _kept(before: Step, step: Step, block: int) -> int:
    """Return the tokens of the previous context that a prompt begins with."""
    if step.blocks is not None:
        return step.shares(before) * block
    context = before.input_tokens + before.output_tokens
    if step.cached == math.inf:
        return context if step.input_tokens > context else 0
    return int(min(step.cached, context))


def _first(place: int, chains: Sequence[Chain], waits: list[Turn], block: int) -> tuple[list[Turn], int, int]:
    """Return the turns that the first turn of a chain waits for, its prefix, and the tokens of that prefix.

    By blocks: a text for all first prompts of the job that begin with the same block, as long as it shares with any of
    them; or the context of a turn that it waits for, where that is more.
    """
    step = chains[place].steps[0]
    text = 1 + crc32(step.text.encode())
    if step.blocks is None:
        return waits, text, 0 if step.cached == math.inf else int(step.cached)
    alike = max((step.shares(other.steps[0]) for i, other in enumerate(chains) if i != place), default=0)

    def forked(turn: Turn) -> int:
        return step.shares(chains[turn[0]].steps[turn[1]])

    waits = sorted(waits, key=lambda turn: -forked(turn))
    if waits and forked(waits[0]) > alike:
        return waits, OWN, forked(waits[0]) * block
    return waits, text, alike * block


def _gaps(before: Sequence[Sequence[int]], begin_s: np.ndarray, end_s: np.ndarray, job_s: np.ndarray) -> np.ndarray:
    """Return the time from the last end that each step waits for, or from the begin of its job, to its own begin, s."""
    ready_s = [max((end_s[row] for row in rows), default=job_s[i]) for i, rows in enumerate(before)]
    return np.maximum(begin_s - np.array(ready_s), 0.0)


def _arrivals(come_s: Sequence[float | None], params: JobParams, streams: Streams) -> np.ndarray:
    if params.rate is not None:
        return arrivals.poisson(streams("arrivals"), params.rate, len(come_s))
    arrivals_s = np.array([math.nan if at_s is None else at_s for at_s in come_s])
    return np.zeros(len(come_s)) if np.isnan(arrivals_s).any() else arrivals_s - arrivals_s.min()


def counted(counts: Counter[str], meanings: Mapping[str, str]) -> Callable[[], list[str]]:
    """Return notes, after the last job, of the counted things: each name's number and meaning."""
    return lambda: [f"{counts[name]} {what}" for name, what in meanings.items() if counts[name]]


def tried(make: Callable[[], Job | None]) -> Iterable[Job | UserError]:
    """Return the job that `make` reads, or its fault; none if there is none."""
    try:
        job = make()
    except UserError as error:
        yield error
        return
    if job is not None:
        yield job
