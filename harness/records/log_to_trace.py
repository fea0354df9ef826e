"""A run's client log turned back into a trace: what its users did, and when, to be played again.

Times come from the log: when each turn began, how long the user spoke, how long they thought, when they
interrupted, counted from the first audio that they received. Lengths come from the log where a reply was
heard to its end. What the log cannot know is the played trace's: the length of an interrupted reply,
network delays, and interruptions that came too late, since under another engine they may be in time.

Played in an open loop by the same engine this gives the same client schedule to the microsecond, which is
the resolution of a trace: turns begin when they began (`absolute`), or as long after the previous reply as
they did (`relative`, in which a slower engine makes users wait and not talk into its replies).
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd

from harness.records.record import Record, load_record
from workloads.errors import UserError
from workloads.registry import serves
from workloads.trace import Trace

Arrivals = Literal["absolute", "relative"]
KEYS = ["session", "turn"]


def finished_record(folder: Path) -> Record:
    """Return a point's record, `DIR/points/ID`. UserError when it is not a finished record."""
    if (folder / "points").is_dir():
        raise UserError(f"{folder} holds the points of a run; give one of them, {folder / 'points'}/ID.")
    if not folder.exists():
        raise UserError(f"{folder} does not exist; give a point's record, DIR/points/ID.")
    record = load_record(folder)
    if record.manifest["status"] != "ok":
        raise UserError(f"{folder} is a failed point without a log; give a finished one.")
    return record


def from_record(folder: Path, arrivals: Arrivals = "absolute") -> Trace:
    """Return the trace of a point's record. UserError when it is not a finished record."""
    record = finished_record(folder)
    trace, events = record.trace(), record.table("events")
    point = record.point
    source = {"point": point.id, "engine": point.engine, "workload": point.workload, "trace_hash": trace.header.hash}
    notes = [f"recorded from point {point.id}: {point.engine} serving {point.workload}, seed {point.seed}"]
    c = point.client_params.get("c")
    if c is not None:
        notes.append(f"recorded in a closed loop, c={c}: its waits are in the arrivals, so play it in an open loop")
    return recorded(trace, events, arrivals, source, notes)


def recorded(
    trace: Trace,
    events: pd.DataFrame,
    arrivals: Arrivals = "absolute",
    source: dict[str, str] | None = None,
    notes: list[str] | None = None,
) -> Trace:
    """Return the trace of the users' acts in a run of `trace`, by its `events` (columns as in `harness.events.log`).
    `source` and `notes` say in the header where the log came from. UserError when no turn began, or it is a run of
    frames, or of agents that call others."""
    if serves(trace) == "frames":
        raise UserError(
            "users of frames act as the trace says, whatever the engine does; replay its trace.parquet, "
            "with workload=file."
        )
    if (trace.columns()["waits"] != "").any():
        raise UserError(
            "agents wait for one another, which times alone do not show; replay its trace.parquet, with workload=file."
        )
    planned = pd.DataFrame(trace.columns()).set_index(KEYS)
    log = _client_log(events)
    began = planned.index.isin(log.dropna(subset=["turn_start"]).index)
    if not began.any():
        raise UserError("no turn of this run began; give a run with served users.")
    turns = planned[began].join(log)
    lost = len(planned) - len(turns)
    kept = [f"{lost} of {len(planned)} turns never began: not recorded"] if lost else []

    cut = turns["barge_in"].notna()
    spoken = turns["modality"] == "audio"
    follows = turns.index.get_level_values("turn") > 0
    thought = turns["turn_start"] - turns["turn_done"].shift()
    measured = follows & ~cut.shift(fill_value=False)
    later = follows & (arrivals == "relative")
    heard_out = turns["reply_done"].notna() & ~cut & turns["turn_done"].notna()
    turns["audio_s"] = (turns["turn_end"] - turns["turn_start"]).fillna(turns["audio_s"]).where(spoken)
    turns["think_s"] = thought.where(measured & thought.notna(), turns["think_s"].fillna(0)).where(follows)
    turns["arrival_s"] = turns["turn_start"].mask(later)
    listened = turns["barge_in"] - turns["first_audio"]
    turns["barge_in_after_s"] = listened.where(cut, turns["barge_in_after_s"])
    turns["output_tokens"] = turns["tokens"].where(heard_out & (turns["tokens"] > 0), turns["output_tokens"])
    turns["reply_audio_s"] = turns["sound"].where(heard_out, turns["reply_audio_s"])
    turns.loc[turns["reply_audio_s"].isna(), "barge_in_after_s"] = np.nan
    return Trace.from_columns(
        {str(name): values.to_numpy() for name, values in turns.reset_index().items() if name in trace.columns()},
        generator="recorded",
        params={**(source or {}), "arrivals": arrivals},
        seed=trace.header.seed,
        notes=[*trace.header.notes, *(notes or []), *kept],
    )


def _client_log(events: pd.DataFrame) -> pd.DataFrame:
    """Return one row per turn: first time of each kind of event and of audio, and what was received, or NaN."""
    events = events.query("turn >= 0").astype({"kind": str})
    times = events.pivot_table(index=KEYS, columns="kind", values="t", aggfunc="min")
    times = times.reindex(columns=["turn_start", "turn_end", "reply_done", "barge_in", "turn_done"])
    sound = events[(events["kind"] == "audio") & (events["value"] > 0)].groupby(KEYS)
    text = events[events["kind"].isin(["first_text", "text"])].groupby(KEYS)
    received = {"first_audio": sound["t"].min(), "sound": sound["value"].sum(), "tokens": text["value"].sum()}
    return times.assign(**received)
