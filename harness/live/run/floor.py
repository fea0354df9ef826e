"""The floor: what the load generator measures of a server that keeps exact time is the generator's own error.

The same processes, clients and endpoints as in a run, against the null server. Answers of client and server are paired
in their order; the null server's own delays are in its truth, so they are not counted as the client's.
"""

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from harness.client.client_params import ClientParams
from harness.clocks.ctrl_c import run_until_ctrl_c
from harness.live.endpoints.target import TargetParams
from harness.live.null_server.null_server import NullServer
from harness.live.run.launch import play_plan
from harness.live.run.plan import Merged, write_plan
from harness.live.run.run_progress import RunProgress
from workloads.audio.synth import synthetic_clips
from workloads.audio.utterances import Utterance
from workloads.generators import content
from workloads.registry import make_trace
from workloads.seeds import stream
from workloads.trace import Trace

PACKETS = {"voice": ["audio"], "telephone": ["audio"], "text": ["first_text", "text"], "frames": ["frame"]}
SERVERS = {"voice": "rehearsal", "telephone": "twilio", "text": "text"}
"""Kinds of null server, each with the dialect that the clients speak to it."""
"""Kinds of events that bring an answer, by kind of load."""
REPLY_S = 1.0  # of audio in each answer: short, so that there are many [chosen]
SPEECH_S = 1.2  # of the longest utterance, for the same reason [chosen]
PROMPT, TOKENS = 16, 32  # of each request and answer, as in comparisons of load generators [config]
TOKEN_S = 0.02  # between tokens: people read no faster than 50 a second [chosen]
FRAME_S = 1.0  # of audio in a frame [chosen]
ARRIVE_S = 1.0  # in which all sessions come: they then speak at different times [chosen]
PATIENCE_S = 60.0  # beyond the run's length before it is given up [chosen]


@dataclass(frozen=True)
class Floor:
    """The floor under one load: seconds where the name ends with `_s`. None: nothing of the kind happened.

    sends_per_s: in the busiest second. send_delay: send returned − due, over everything sent. bias: time to first
    packet or token as the client reports it (from the scheduled end of the turn, send delay included) − at the server
    (from reading the request). `itl_bias`: the same for the mean time between packets or tokens of an answer.
    """

    kind: str
    sessions: int
    shards: int
    answers: int
    failed: int
    sends: int
    sends_per_s: float | None
    send_delay_p50_s: float | None
    send_delay_p99_s: float | None
    send_delay_max_s: float | None
    reported_p50_s: float | None
    reported_p99_s: float | None
    true_p50_s: float | None
    true_p99_s: float | None
    bias_p50_s: float | None
    bias_p99_s: float | None
    itl_reported_p50_s: float | None
    itl_true_p50_s: float | None
    itl_bias_p99_s: float | None
    cpu_share: float
    """CPU time of all shards, of one core."""
    cpu_s_per_answer: float | None
    server_cpu_share: float
    """The null server's, of one core; near 1 it would be the bottleneck, and its truth says so."""
    server_late_p99_s: float | None


@dataclass(frozen=True)
class Exchange:
    """One run against the null server: the output of the clients, the server's log (`null_pace.Truth`), its own
    quality."""

    merged: Merged
    truth: pa.Table
    server: dict[str, Any]


def measure_floor(
    kind: str, sessions: int, shards: int, seconds: float, params: Mapping[str, Any] | None = None
) -> Floor:
    """Measure the floor of `sessions` concurrent sessions in `shards` processes. No turn begins after `seconds`.
    `kind`: voice, telephone, text or frames. `params`: fields of `TargetParams`."""
    if kind == "frames":
        trace, args = frames_trace(sessions, seconds), ("--frame-s", str(FRAME_S))
    elif kind == "text":
        trace, args = text_trace(sessions, seconds), ("--interval-s", str(TOKEN_S))
    else:
        trace, args = voice_trace(sessions, seconds), ()
    return floor_of(kind, sessions, shards, play(kind, trace, seconds, shards, dict(params or {}), *args))


def play(
    kind: str,
    trace: Trace,
    seconds: float,
    shards: int,
    params: Mapping[str, Any],
    *server_args: str,
    core: int | None = None,
) -> Exchange:
    """Play `trace` against a null server; no turn begins after `seconds`.

    The server runs on `core` where that is given; clients run where this process may. RuntimeError when a load
    generator is lost.
    """
    with tempfile.TemporaryDirectory(prefix="rehearsal-floor-") as name:
        folder = Path(name)
        listens = kind if kind in SERVERS else "voice"
        with NullServer(listens, folder, *server_args, core=core) as server:
            target = TargetParams.model_validate(
                {"url": server.url, "dialect": SERVERS[listens], "shards": shards, **params}
            )
            plan = write_plan(folder, trace, target, ClientParams.model_validate({"stop_after_s": seconds}))
            progress = RunProgress(len(trace.sessions))
            output = run_until_ctrl_c(play_plan(folder, plan, progress, None, seconds + PATIENCE_S))
            for index, loss in output.merged.lost.items():
                raise RuntimeError(f"the floor was not measured: load generator {index} {loss.reason}")
            return Exchange(output.merged, *server.stop())


def floor_of(kind: str, sessions: int, shards: int, exchange: Exchange) -> Floor:
    """Return the generator's error in one run against the null server."""
    merged, truth = exchange.merged, exchange.truth.to_pandas()
    answers = answered(merged.events.to_pandas(), PACKETS[kind])
    first, gap = (answers[name].to_numpy() for name in ("first_s", "gap_s"))
    truth = truth.sort_values("first_s")
    true_first = (truth["first_s"] - truth["read_s"]).to_numpy()
    spread = (truth["last_s"] - truth["first_s"]).to_numpy()
    true_gap = np.divide(spread, truth["packets"] - 1, out=np.full(len(truth), np.nan), where=truth["packets"] > 1)
    paired = len(answers) == len(truth)
    bias, gap_bias = (first - true_first, gap - true_gap) if paired else (np.empty(0), np.empty(0))
    delays_s = merged.sends["send_delay_s"].to_numpy()
    wall_s = max((shard.get("wall_s", 0.0) for shard in merged.shards), default=0.0)
    cpu_s = sum(shard.get("cpu_s", 0.0) for shard in merged.shards)
    times_s = {"send_delay": delays_s, "reported": first, "true": true_first, "bias": bias}
    percentiles = {f"{name}_p{q}_s": _percentile(values, q) for name, values in times_s.items() for q in (50, 99)}
    return Floor(
        kind=kind,
        sessions=sessions,
        shards=shards,
        answers=len(answers),
        failed=merged.failures.num_rows,
        sends=len(delays_s),
        sends_per_s=_busiest(merged.sends["due_s"].to_numpy()),
        send_delay_max_s=_percentile(delays_s, 100),
        itl_reported_p50_s=_percentile(gap, 50),
        itl_true_p50_s=_percentile(true_gap, 50),
        itl_bias_p99_s=_percentile(gap_bias, 99),
        cpu_share=cpu_s / wall_s if wall_s else float("nan"),
        cpu_s_per_answer=cpu_s / len(answers) if len(answers) else None,
        server_cpu_share=exchange.server["cpu_s"] / wall_s if wall_s else float("nan"),
        server_late_p99_s=exchange.server["late_p99_s"],
        **percentiles,
    )


def answered(events: pd.DataFrame, packet: list[str]) -> pd.DataFrame:
    """Return the turns with an answer, in the order of their first packets. Columns: first_s from the scheduled end of
    the turn, gap_s the mean time between packets; NaN for a single one."""
    keys = ["session", "turn"]
    ends = events[events["kind"] == "turn_end"].set_index(keys)["t"]
    arrived = events[events["kind"].isin(packet) & (events["value"] > 0)].groupby(keys)["t"].agg(["min", "max", "size"])
    arrived = arrived.join(ends, how="inner").sort_values("min")
    gaps = arrived["size"] - 1
    return pd.DataFrame(
        {"first_s": arrived["min"] - arrived["t"], "gap_s": (arrived["max"] - arrived["min"]) / gaps.where(gaps > 0)}
    )


def voice_trace(sessions: int, seconds: float, up_to_s: float = SPEECH_S) -> Trace:
    """Return calls of synthetic speech that all arrive within `ARRIVE_S` and go on, without pause, beyond `seconds`.
    `up_to_s`: longest utterance."""
    turns = 1 + int(seconds)
    session, turn = np.divmod(np.arange(sessions * turns), turns)
    speech = [Utterance(clip, 0.0, clip.seconds) for clip in synthetic_clips() if clip.seconds <= up_to_s]
    first = content.places(stream(0, content.STREAM), sessions, len(speech))
    audio_s = np.array([utterance.seconds for utterance in speech])[(first[session] + turn) % len(speech)]
    return Trace.from_columns(
        _back_to_back(session, turn) | {"modality": "audio", "audio_s": audio_s, "reply_audio_s": REPLY_S},
        generator="speech",
        notes=[content.note(utterance) for utterance in speech],
    )


def text_trace(sessions: int, seconds: float) -> Trace:
    """Return chats that all arrive within `ARRIVE_S` and ask again at once, for longer than `seconds`."""
    turns = 1 + int(seconds / (TOKENS * TOKEN_S))
    session, turn = np.divmod(np.arange(sessions * turns), turns)
    return Trace.from_columns(_back_to_back(session, turn) | {"modality": "text"}, generator="floor")


def _back_to_back(session: np.ndarray, turn: np.ndarray) -> dict[str, Any]:
    """Return columns of turns that follow one another at once, in sessions that all arrive within `ARRIVE_S`."""
    return {
        "session": session,
        "turn": turn,
        "arrival_s": np.where(turn == 0, _spread(session), np.nan),
        "input_tokens": PROMPT,
        "output_tokens": TOKENS,
        "think_s": np.where(turn > 0, 0.0, np.nan),
        "network_s": 0.0,
    }


def frames_trace(sessions: int, seconds: float) -> Trace:
    """Return calls without pause that all arrive within `ARRIVE_S`."""
    until_s = max(seconds, ARRIVE_S + FRAME_S)
    offered = {"sessions": sessions, "rate": sessions / ARRIVE_S, "duration_s": until_s, "frame_s": FRAME_S}
    return make_trace("metronome", {**offered, "network_ms": 0.0}, 0)


def _spread(session: np.ndarray) -> np.ndarray:
    """Return arrivals of sessions 0.., as even as possible for any number of them: multiples of the golden ratio."""
    return ARRIVE_S * ((session * (np.sqrt(5) - 1) / 2) % 1)


def _busiest(due_s: np.ndarray) -> float | None:
    return float(np.unique(np.floor(due_s), return_counts=True)[1].max()) if len(due_s) else None


def _percentile(values: np.ndarray, q: float) -> float | None:
    values = values[~np.isnan(values)]
    return float(np.percentile(values, q)) if len(values) else None
