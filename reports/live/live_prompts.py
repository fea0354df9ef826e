"""Sentences on the prompts of a live run: their text, the seed of their users, and the share that a cache held."""

from __future__ import annotations

from harness.live.endpoints.target import TargetParams
from reports.live.live_record import loads, middle
from reports.runs.measured import Run
from reports.tables.columns import CACHED
from reports.tables.labels import listed
from workloads.generators.conversations import NAME as CONVERSATIONS


def prompt_notes(run: Run) -> list[str]:
    """Return the sentences; none for a run of an earlier version, which holds no seed, at a server without a cache."""
    seed, same = (run.experiment.set.get(name) for name in ("users_seed", "same_users"))
    notes = _text(run)
    if seed is not None and not same:
        notes.append(f"Each load and repeat had other users, drawn from seed {seed}; --seed {seed} repeats them.")
    elif seed is not None:
        notes.append(
            f"All loads had the same users, drawn from seed {seed} (--same-users): a server with a prefix cache may "
            "find the prompts of earlier loads in it, and answers later loads faster."
        )
    return [*notes, *_cached(run)]


def _text(run: Run) -> list[str]:
    """Return a sentence on the text that typed turns had; none where the server is spoken to."""
    if not TargetParams.model_construct(url=str(run.experiment.set.get("url", ""))).is_text:
        return []
    stored = next((point for point in run.points if point.has("trace")), None)
    if stored is None:
        return []
    header = stored.record.trace().header
    if header.generator != CONVERSATIONS:
        return [
            "Sent: words drawn to the lengths of the trace, which has no text of its own (--data FILE sends yours)."
        ]
    recorded = run.experiment.set.get("chat_history") == "recorded"
    history = "the recorded replies" if recorded else "the server's own replies"
    return [f"Sent: the conversations of {header.params['path']}, turn by turn, with {history} as history."]


def _cached(run: Run) -> list[str]:
    """`Prompt tokens in the server's prefix cache: 12 % (c=2), 84 % (c=4), as its replies state.`"""
    sources = ("as its replies state", "by its own counters, which all clients move")
    for column, source in zip(CACHED, sources, strict=True):
        shares = [
            (load.label(run) or load.variant.label, middle(point.kept.get(column.metric) for point in load.points))
            for load in loads(run)
        ]
        parts = [f"{100 * share:.0f} % ({label})" for label, share in shares if share is not None]
        if parts:
            return [f"Prompt tokens in the server's prefix cache: {listed(parts)}, {source}."]
    return []
