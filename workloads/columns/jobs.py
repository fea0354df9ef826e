"""Jobs of agents: sessions whose turns wait for one another, and the shared parts of their prompts.

A job is a main agent and the agents that it calls; each is a session with a context of its own. Sessions of a job
stand together, with numbers that follow each other, the main one first: the first turns of the others wait.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from typing import Any

import numpy as np

from workloads.columns.classes import Rule

BEGIN = "begin"
"""Value of `waits` for a turn that waits only for the begin of its job."""
OWN = 0
"""Value of `prefix`: the context of the turn begins with its session's own past. A first turn continues the prefix of
the first turn that it waits for."""


@dataclass(frozen=True, slots=True)
class JobTurn:
    """A turn's part of an agent's job.

    waits             turns of other sessions of its job that it waits for, besides the one before, to begin `think_s`
                      after all have ended (`links`). A first turn that waits is of an agent that another calls, in the
                      job of the session before; None: it waits for none, and a first turn begins a job
    prefix            begin of the context of `history_tokens`: 0: what this session has said so far, and of a first
                      turn the one that it waits for first; above: the text of that number, which all share
    recorded_s        seconds that the job took that begins with this turn, when it was recorded
    """

    waits: str | None = None
    prefix: int | None = None
    recorded_s: float | None = None


NO_JOB = JobTurn()
JOB_COLUMNS = tuple(field.name for field in fields(JobTurn))

Link = tuple[int, int]
"""Link to a turn of the same job: offset of the session number, and the turn."""


@cache
def links(waits: str | None) -> tuple[Link, ...]:
    """Return the turns that `waits` names. "1:4,-2:0" is turn 4 of the next session, and the first turn of the session
    two before. ValueError for another form."""
    if not waits or waits == BEGIN:
        return ()
    pairs = (link.split(":") for link in waits.split(","))
    return tuple((int(offset), int(turn)) for offset, turn in pairs)


def written(waits: Sequence[Link]) -> str:
    """The same the other way round."""
    return ",".join(f"{offset}:{turn}" for offset, turn in waits) or BEGIN


def starts(columns: Mapping[str, Any]) -> np.ndarray:
    """Return the turns that are the first of their job, or of a session without a job."""
    return (np.asarray(columns["turn"]) == 0) & (np.asarray(columns["waits"]) == "")


def job_of(columns: Mapping[str, Any]) -> np.ndarray:
    """Number of the session that each turn's job began with, shape (turns,), in the order of a trace."""
    first = np.where(starts(columns), np.arange(len(columns["turn"])), 0)
    return np.asarray(columns["session"])[np.maximum.accumulate(first)]


@dataclass(frozen=True)
class Waits:
    """The waits of a trace's turns, in order: rows of turns that end before each, and its wait after that, s.

    A turn without any waits from the begin of its job, the first one of a job not at all.
    """

    before: Sequence[Sequence[int]]
    gap_s: np.ndarray

    @classmethod
    def of(cls, columns: Mapping[str, Any]) -> Waits:
        """Build from the columns of a trace; KeyError if a turn waits for one that does not exist."""
        turn = np.asarray(columns["turn"])
        before: list[list[int]] = [[row - 1] if index else [] for row, index in enumerate(turn.tolist())]
        waiting = np.flatnonzero(np.asarray(columns["waits"]) != "").tolist()
        if waiting:
            session = np.asarray(columns["session"])
            rows = {key: row for row, key in enumerate(zip(session.tolist(), turn.tolist(), strict=True))}
            for row in waiting:
                awaited = links(str(columns["waits"][row]))
                before[row] += [rows[int(session[row]) + offset, later] for offset, later in awaited]
        gap_s = np.nan_to_num(np.asarray(columns["think_s"], float))
        return cls(before, np.where(starts(columns), 0.0, gap_s))

    def ends(self, begin_s: np.ndarray, took_s: np.ndarray) -> np.ndarray:
        """Return the end of each turn, s, shape (turns,), given the begin of its job `begin_s` and the duration of
        its reply `took_s`; NaN for turns that wait for themselves.
        """
        followers: list[list[int]] = [[] for _ in self.before]
        for row, rows in enumerate(self.before):
            for earlier in rows:
                followers[earlier].append(row)
        missing = [len(rows) for rows in self.before]
        begins, end_s = begin_s.tolist(), np.full(len(missing), np.nan)
        ready = [row for row, count in enumerate(missing) if not count]
        while ready:
            row = ready.pop()
            begin = max((end_s[earlier] for earlier in self.before[row]), default=begins[row])
            end_s[row] = begin + self.gap_s[row] + took_s[row]
            for later in followers[row]:
                missing[later] -= 1
                if not missing[later]:
                    ready.append(later)
        return end_s


def rules(columns: Mapping[str, Any]) -> list[Rule]:
    """Return the rules that a trace must keep, for its own check."""
    waits, prefix, turn = columns["waits"], columns["prefix"], columns["turn"]
    none = np.zeros(len(turn), bool)
    begins = starts(columns)
    if turn[0] or ((waits == "").all() and all(np.isnan(columns[name]).all() for name in JOB_COLUMNS[1:])):
        return []
    session, job, called = columns["session"], job_of(columns), (turn == 0) & (waits != "")
    odd, lost, round_ = none.copy(), none.copy(), none.copy()
    job_by_turn = dict(zip(zip(session.tolist(), turn.tolist(), strict=True), job.tolist(), strict=True))
    for row in np.flatnonzero(waits != "").tolist():
        try:
            keys = [(int(session[row]) + offset, later) for offset, later in links(str(waits[row]))]
        except ValueError:
            odd[row] = True
        else:
            lost[row] = any(job_by_turn.get(key) != job[row] for key in keys)
    if not (odd | lost).any():
        zero = np.zeros(len(turn))
        round_ = np.isnan(Waits.of(columns).ends(zero, zero))
    arrival_s = columns["arrival_s"]
    same = arrival_s == arrival_s[np.maximum.accumulate(np.where(begins, np.arange(len(turn)), 0))]
    alone = np.isin(job, job[called], invert=True)
    return [
        ("waits", ~begins & (np.arange(len(turn)) == 0), "needs a session before it, of whose job it is"),
        ("session", called & (np.diff(session, prepend=-2) != 1), "must follow the one before, which is of its job"),
        ("waits", odd, "must be begin, or SESSIONS_ON:TURN with commas between, as 1:4,-2:0"),
        ("waits", lost, "must name turns of the same job"),
        ("waits", round_, "the turn would wait for itself"),
        ("arrival_s", called & ~same, "must be that of the job, which its sessions share"),
        ("think_s", called & np.isnan(columns["think_s"]), "a session that is called needs it"),
        ("backlog", ~np.isnan(columns["backlog"]) & ~alone, "a job of several sessions is of no backlog"),
        ("prefix", ~np.isnan(prefix) & (prefix != np.floor(prefix)), "must be a whole number"),
        ("prefix", ~np.isnan(prefix) & np.isnan(columns["history_tokens"]), "needs history_tokens, its length"),
        ("prefix", prefix >= 2**53, "must be below 2**53"),
        ("recorded_s", ~np.isnan(columns["recorded_s"]) & ~begins, "belongs to the begin of a job"),
    ]  # fmt: skip
