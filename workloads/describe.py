"""What a trace holds, in a dozen numbers."""

from __future__ import annotations

import numpy as np

from workloads.trace import Trace


def describe(trace: Trace) -> dict[str, float | int | None]:
    """Summary of a trace by name, units in the names; None where the trace has nothing to measure.

    Rate and gaps are over the turns with a scheduled arrival: each session's first, all of a replay.
    """
    columns = trace.columns()
    arrivals = np.sort(columns["arrival_s"][~np.isnan(columns["arrival_s"])])
    gaps = np.diff(arrivals)
    span = float(arrivals[-1] - arrivals[0])
    spoken_replies = int(np.sum(~np.isnan(columns["reply_audio_s"])))
    barge_ins = int(np.sum(~np.isnan(columns["barge_in_after_s"])))
    turns = len(columns["turn"])
    summary: dict[str, float | int | None] = {
        "sessions": len(trace.sessions),
        "turns": turns,
        "turns_per_session_mean": turns / len(trace.sessions),
        "turns_per_session_max": max(len(session.turns) for session in trace.sessions),
        "arrivals_span_s": span,
        "arrival_rate_per_s": len(gaps) / span if span else None,
        "arrival_gap_cv": float(gaps.std() / gaps.mean()) if span else None,
    }
    for name in ("input_tokens", "output_tokens"):
        summary[f"{name}_mean"] = float(columns[name].mean())
        summary[f"{name}_p50"] = float(np.percentile(columns[name], 50))
        summary[f"{name}_p99"] = float(np.percentile(columns[name], 99))
    for name in ("audio_s", "reply_audio_s"):
        known = columns[name][~np.isnan(columns[name])]
        summary[f"{name}_total"] = float(known.sum()) if len(known) else None
        summary[f"{name}_p50"] = float(np.median(known)) if len(known) else None
    summary["barge_in_share"] = barge_ins / spoken_replies if spoken_replies else None
    return summary
