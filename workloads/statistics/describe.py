"""Descriptions of a trace: `describe` in a dozen numbers, `statistics` in all that its users would notice."""

import re
from typing import Any

import numpy as np

from workloads.columns.classes import DEADLINES, in_order
from workloads.columns.duplex_events import EVENTS, TAKES_FLOOR
from workloads.columns.jobs import Waits, job_of
from workloads.registry import serves
from workloads.trace import Columns, Trace
from workloads.transforms.nominal import nominal

MIN_WINDOWS = 10


def rate(times: np.ndarray) -> float | None:
    """Arrivals per second between the first and the last."""
    span = times[-1] - times[0] if len(times) else 0.0
    return float((len(times) - 1) / span) if span > 0 else None


def gap_cv(times: np.ndarray) -> float | None:
    """Coefficient of variation of the gaps: 1 for Poisson, above it bursts, 0 for a constant rate."""
    gaps = np.diff(times)
    return float(gaps.std() / gaps.mean()) if len(gaps) and gaps.any() else None


def lag_1(times: np.ndarray) -> float | None:
    """Correlation of each gap with the next: 0 for a renewal process, above it short gaps come together."""
    gaps = np.diff(times)
    if len(gaps) < 3 or np.ptp(gaps[:-1]) == 0 or np.ptp(gaps[1:]) == 0:
        return None
    return float(np.corrcoef(gaps[:-1], gaps[1:])[0, 1])


def dispersion(times: np.ndarray, window_s: float) -> float | None:
    """Index of dispersion: variance by mean of the counts in windows of `window_s`; 1 for Poisson.

    Windows begin at the first arrival; a last one that is not full is left out, and fewer than 10 measure
    nothing.
    """
    windows = int((times[-1] - times[0]) / window_s) if len(times) else 0
    if windows < MIN_WINDOWS:
        return None
    index = ((times - times[0]) / window_s).astype(np.int64)
    counts = np.unique(index[index < windows], return_counts=True)[1]  # non-empty windows
    mean = counts.sum() / windows
    return float((np.sum(counts**2) - windows * mean**2) / (windows - 1) / mean)


WINDOWS_S = (1, 10, 60)
QUANTILES = (10, 50, 90, 99)
SYNTHETIC_SPEECH = "synthetic speech"
"""Words in a trace's notes where no recorded voice was used."""

Number = float | int | None


def describe(trace: Trace) -> dict[str, Number]:
    """Summary of a trace by name, units in the names; None where the trace has nothing to measure.

    Rate and gaps are over the turns with a scheduled arrival: each session's first, all of a replay of requests.
    """
    columns = trace.columns()
    arrivals = scheduled(trace)
    spoken_replies = int(np.sum(~np.isnan(columns["reply_audio_s"])))
    barge_ins = int(np.sum(~np.isnan(columns["barge_in_after_s"])))
    sessions, turns = int(np.sum(columns["turn"] == 0)), len(trace)
    summary: dict[str, Number] = {
        "sessions": sessions,
        "turns": turns,
        "turns_per_session_mean": turns / sessions,
        "turns_per_session_max": int(columns["turn"].max()) + 1,
        "arrivals_span_s": float(arrivals[-1] - arrivals[0]),
        "arrival_rate_per_s": rate(arrivals),
        "arrival_gap_cv": gap_cv(arrivals),
    }
    for name in ("input_tokens", "output_tokens"):
        summary[f"{name}_mean"] = float(columns[name].mean())
        summary[f"{name}_p50"] = float(np.percentile(columns[name], 50))
        summary[f"{name}_p99"] = float(np.percentile(columns[name], 99))
    for name in ("audio_s", "reply_audio_s"):
        present = columns[name][~np.isnan(columns[name])]
        summary[f"{name}_total"] = float(present.sum()) if len(present) else None
        summary[f"{name}_p50"] = float(np.median(present)) if len(present) else None
    summary["barge_in_share"] = barge_ins / spoken_replies if spoken_replies else None
    return summary


def statistics(trace: Trace) -> dict[str, Any]:
    """Everything that `rehearse trace stat` prints, ready for JSON.

    sessions, turns
    arrivals     n, span, rate, CV and lag-1 correlation of gaps, index of dispersion over windows; of the
                 turns with a scheduled arrival: each session's first, all of a replay
    quantities   name -> n, mean, quantiles, min, max, total; a quantity that no turn has is left out
    speech       p_drawn        share of spoken replies for which an interruption was drawn
                 p_in_time      share of spoken replies that are interrupted if the server answers at once
                 overlap_share  share of the user's speech (s) in turns that begin over the reply before
                 synthetic      the trace's note on synthetic speech, or None
    notes        those of the header for people
    events       only of a trace that has some: name -> share of its turns; a hesitation is one, too
    classes      only of a trace that has some: name -> sessions (with a turn of it), turns, rate of its scheduled
                 arrivals, mean lengths, and the lowest and highest of priority and deadlines, None where it has none
    """
    columns = trace.columns()
    arrivals = scheduled(trace)
    classes = {name: _class(columns, rows) for name, rows in in_order(columns).items()}
    return {
        "sessions": int(np.sum(columns["turn"] == 0)),
        "turns": len(trace),
        "arrivals": {
            "n": len(arrivals),
            "span_s": float(arrivals[-1] - arrivals[0]),
            "rate_per_s": rate(arrivals),
            "gap_cv": gap_cv(arrivals),
            "gap_lag_1": lag_1(arrivals),
            **{f"dispersion_{window}s": dispersion(arrivals, window) for window in WINDOWS_S},
        },
        "quantities": {name: _quantity(values) for name, values in quantities(trace).items() if len(values)},
        "speech": _speech(trace, columns),
        "notes": notes(trace),
        **_events(columns),
        **({"classes": classes} if classes else {}),
    }


def notes(trace: Trace) -> list[str]:
    """Return the notes of the header, without the list of utterances."""
    return [note for note in trace.header.notes if not note.startswith(("utterance: ", "turn ", "event "))]


def left_out(trace: Trace) -> list[str]:
    """Return the notes on what the trace lacks of its source: rows, messages, and tokens beyond a limit."""
    return [note for note in notes(trace) if _LEFT_OUT.search(note)]


_LEFT_OUT = re.compile(r"^(?!0(\.0+)?[% ]).*\b(dropped|skipped|left out|passed over|cut to)\b")


def scheduled(trace: Trace) -> np.ndarray:
    """Arrival times that the trace fixes, in s, ascending; of calls in frames, which follow by the beat, the first."""
    columns = trace.columns()
    arrival_s = columns["arrival_s"]
    comes = columns["turn"] == 0 if serves(trace) == "frames" else ~np.isnan(arrival_s)
    called = (columns["turn"] == 0) & (columns["waits"] != "")
    return np.sort(arrival_s[comes & ~called])


def quantities(trace: Trace) -> dict[str, np.ndarray]:
    """Return known values per turn or session, with units in the names; empty without values."""
    columns = trace.columns()
    values = {
        "turns_per_session": np.unique(columns["session"], return_counts=True)[1].astype(float),
        "input_tokens": columns["input_tokens"].astype(float),
        "context_tokens": nominal(trace).context_tokens.astype(float),
        "output_tokens": columns["output_tokens"].astype(float),
    }
    for name in (
        "visual_tokens",
        "audio_s",
        "reply_audio_s",
        "think_s",
        "barge_in_after_s",
        "network_s",
        "pause_s",
        "event_s",
    ):
        values[name] = columns[name][~np.isnan(columns[name])]
    return values | _jobs(columns)


def _jobs(columns: Columns) -> dict[str, np.ndarray]:
    """Return for each agents' job its steps, the tokens of their prompts, its recorded time (s), and the time of its
    tools (s) with a server that takes no time."""
    job, begins = job_of(columns), ~np.isnan(columns["recorded_s"])
    if not begins.any():
        return {}
    rows = np.isin(job, job[begins])
    _, place, steps = np.unique(job[rows], return_inverse=True, return_counts=True)
    tools_s, zero = np.zeros(len(steps)), np.zeros(len(job))
    np.maximum.at(tools_s, place, Waits.of(columns).ends(zero, zero)[rows])
    prompts = (np.nan_to_num(columns["history_tokens"]) + columns["input_tokens"])[rows]
    return {
        "job_steps": steps.astype(float),
        "job_prompt_tokens": np.bincount(place, prompts),
        "job_recorded_s": columns["recorded_s"][begins],
        "job_tools_s": tools_s,
    }


def _events(columns: Columns) -> dict[str, dict[str, float]]:
    happens = {"hesitation": ~np.isnan(columns["pause_s"])} | {name: columns["event"] == name for name in EVENTS}
    shares = {name: float(here.mean()) for name, here in happens.items() if here.any()}
    return {"events": shares} if shares else {}


def _class(columns: Columns, rows: np.ndarray) -> dict[str, Any]:
    arrivals = columns["arrival_s"][rows]
    return {
        "sessions": len(np.unique(columns["session"][rows])),
        "turns": int(rows.sum()),
        "rate_per_s": rate(np.sort(arrivals[~np.isnan(arrivals)])),
        "input_tokens_mean": float(columns["input_tokens"][rows].mean()),
        "output_tokens_mean": float(columns["output_tokens"][rows].mean()),
        "priority": _span(np.nan_to_num(columns["priority"][rows])),
        **{name: _span(columns[name][rows]) for name in DEADLINES},
    }


def _span(values: np.ndarray) -> list[float] | None:
    present = values[~np.isnan(values)]
    return [float(present.min()), float(present.max())] if len(present) else None


def _quantity(values: np.ndarray) -> dict[str, float | int]:
    quantiles = {f"p{q}": float(np.percentile(values, q)) for q in QUANTILES}
    bounds = {"min": float(values.min()), "max": float(values.max()), "total": float(values.sum())}
    return {"n": len(values), "mean": float(values.mean()), **quantiles, **bounds}


def _speech(trace: Trace, columns: Columns) -> dict[str, float | str | None]:
    speech = np.nan_to_num(columns["audio_s"])
    replies = int(np.sum(~np.isnan(columns["reply_audio_s"])))
    interrupted = nominal(trace).interrupted
    over_reply = np.roll(interrupted, 1) & (columns["turn"] > 0)
    drawn = int(np.sum(~np.isnan(columns["barge_in_after_s"]) | np.isin(columns["event"], TAKES_FLOOR)))
    return {
        "p_drawn": drawn / replies if replies else None,
        "p_in_time": int(interrupted.sum()) / replies if replies else None,
        "overlap_share": float(speech[over_reply].sum() / speech.sum()) if speech.any() else None,
        "synthetic": next((note for note in trace.header.notes if SYNTHETIC_SPEECH in note.lower()), None),
    }
