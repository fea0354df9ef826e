"""A deployment fitted to runs of a server that speaks: each load is left out once, then all of them are fitted.

A client sees when the first packet comes and how fast a reply grows. So two times are fitted: seconds outside the GPUs
before a reply, and the host's seconds in a step of the talker. The lengths of chunks are read from the packets.
"""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd

from engines.deployments import Deployment
from engines.devices.profile import save_facts
from engines.devices.step_file import Factor
from engines.server import ServerParams, resolve
from harness.measured_runs.calibrate import MANY, Show, rounded, workers
from harness.measured_runs.measured_run import VoiceRun
from harness.measured_runs.predict import DEPLOYMENT, LOG, PATIENCE_S
from harness.measured_runs.search import UNKNOWN, Search
from harness.records.measured import facts_of
from harness.request_tables.steady_window import Load, counted
from workloads.errors import UserError
from workloads.registry import serves
from workloads.trace import Trace

ENGINE = "vllm_omni"
"""Stock scheduling."""
METRICS = ("audio_ttfp_p50", "audio_ttfp_p90", "rtf_p50", "continuity")
"""Metrics that are compared, over the steady window. The constants are fitted to two of them."""
DECIDE = [METRICS.index("audio_ttfp_p50"), METRICS.index("rtf_p50")]
TALKER = ("host_s", "host_s_per_request")
CHUNKS = ("initial_codec_chunk_frames", "codec_chunk_frames")
WIDTH = 0.25
"""Standard deviations of the priors: of the host's time, as a share of the talker's time for a frame; of the seconds
outside the GPUs, as a share of TTFP; both at the lowest load. [chosen]"""
MOST_REPLAYS = 10
"""Replays of a fit, about, each of all its loads. [chosen]"""
LEAST = 10
"""Complete replies in the steady window below which a load says too little. [chosen]"""
ONE_CHUNK_S = 0.01
"""Packets that follow each other faster are pieces of one chunk. [chosen]"""
COMMON = 0.9
"""Share of the chunks that have one length, if packets show it. [chosen]"""


@dataclass(frozen=True)
class VoiceLoad:
    """One load. `label`: the same for repeats. `users`: their seed, `client`: their settings; `typed`: none spoke.
    `columns`: the trace, with the lengths of the replies that came. `chunks`, by CHUNKS: seconds of each chunk. `pace`:
    RTF between a reply's first packet and its last. `reply_s`: length of a reply."""

    name: str
    label: str
    users: int
    columns: Mapping[str, np.ndarray]
    client: Mapping[str, Any]
    timing: Load
    measured: np.ndarray
    chunks: Mapping[str, np.ndarray]
    replies: int
    failed: int
    pace: float
    reply_s: float
    typed: bool


@dataclass(frozen=True)
class VoiceFit:
    """A fit. `deployment`: content of the server's file, like `base`. `before`, by load: METRICS of `base`; `held_out`:
    of the fit to the other loads; `fitted`: of the fit to all, to which the constants belong."""

    base: str
    deployment: dict[str, Any]
    loads: list[VoiceLoad]
    before: list[np.ndarray]
    held_out: list[np.ndarray]
    fitted: list[np.ndarray]
    constants: dict[str, Factor]

    def errors(self, of: Sequence[np.ndarray]) -> np.ndarray:
        """Return the errors of METRICS by load: of shares in points, of others as shares of the measured value."""
        measured = np.array([load.measured for load in self.loads])
        off = np.array(of) - measured
        return np.where(np.array(METRICS) == "continuity", off, off / measured)

    @property
    def known_error(self) -> str:
        """The errors of loads that were left out, in words."""
        ttfp, tail, rtf, gaps = 100 * np.nanmax(np.abs(self.errors(self.held_out)), axis=0)
        loads = ", ".join(dict.fromkeys(load.label for load in self.loads))
        return (
            f"each measured load ({loads}) left out of the fit once: TTFP P50 within {ttfp:.0f} %, P90 {tail:.0f} %, "
            f"RTF {rtf:.0f} %, continuity {gaps:.0f} points"
        )


def loads_of(run: VoiceRun) -> Iterator[VoiceLoad]:
    """Yield the loads of a run. UserError where users do not take turns, or too few replies were complete."""
    for record, label in zip(run.records, run.labels, strict=True):
        repeat = f", seed {record.point.seed}" if run.labels.count(label) > 1 else ""
        name, trace, requests = f"{run.name}, {label}{repeat}", record.trace(), record.table("requests")
        if serves(trace) != "turns":
            raise UserError(f"{name} is of {serves(trace)}; give runs of workload speech, whose users take turns.")
        metrics, steady = record.metrics, counted(requests)
        replies = metrics["rtf_p50"]["n"]
        if replies < LEAST:
            raise UserError(
                f"{name} has {replies} complete replies in its steady window, and a fit needs {LEAST}; measure longer "
                "(--duration)."
            )
        columns = trace.columns()
        # No turn begins after the last measured one.
        client = record.point.client_params | {
            "turn_timeout_s": PATIENCE_S,
            "stop_after_s": float(np.max(requests["turn_start_s"])) + 1e-6,
        }
        yield VoiceLoad(
            name=name,
            label=label,
            users=trace.header.seed,
            columns=_as_served(columns, requests, record.table("events")),
            client=client,
            timing=facts_of(record.stored or {}, Load).timing,
            measured=np.array([metrics[name]["value"] for name in METRICS], float),
            chunks=_chunks(record.table("events")),
            replies=replies,
            failed=int(metrics["failed"]["value"]),
            pace=metrics["rtf_gen_p50"]["value"],
            reply_s=float(np.nanmedian(np.asarray(steady["audio_s"], float))),
            typed=not np.isfinite(columns["audio_s"]).any(),
        )


def _as_served(
    columns: Mapping[str, np.ndarray], requests: pd.DataFrame, events: pd.DataFrame
) -> dict[str, np.ndarray]:
    """Return a trace with the lengths of the replies that came whole. The others have their planned lengths, times the
    usual ratio of received to planned, and at least what was received: a cut reply was still being generated."""
    turns = pd.DataFrame({name: columns[name] for name in ("session", "turn", "output_tokens", "reply_audio_s")})
    done = events.loc[events["kind"] == "reply_done", ["session", "turn"]].drop_duplicates().assign(done=True)
    seen = requests[["session", "turn", "audio_s", "generated_entry"]]
    both = turns.merge(seen, on=["session", "turn"], how="left").merge(done, on=["session", "turn"], how="left")
    names = ("reply_audio_s", "output_tokens", "audio_s", "generated_entry")
    planned, tokens, received, generated = (both[name].to_numpy(float, na_value=np.nan) for name in names)
    came = np.nan_to_num(received)
    whole = both["done"].notna().to_numpy() & (came > 0)
    usual = np.median((came / planned)[whole])
    reply_s = np.where(whole, came, np.maximum(planned * usual, came))
    tokens = np.where(np.isnan(planned), tokens, tokens * reply_s / planned)
    tokens = np.where(whole & ~np.isnan(generated), generated, tokens)
    lengths = {"reply_audio_s": reply_s, "output_tokens": np.maximum(1, np.rint(tokens)).astype(int)}
    return {**columns, **lengths}


def _chunks(events: pd.DataFrame) -> dict[str, np.ndarray]:
    """Return the seconds of the first chunk of each reply, and of those between it and the last."""
    packets = events.loc[events["kind"] == "audio", ["session", "turn", "t", "value"]].sort_values("t", kind="stable")
    of_reply = packets.groupby(["session", "turn"])
    at = (of_reply["t"].diff().fillna(np.inf) > ONE_CHUNK_S).groupby([packets["session"], packets["turn"]]).cumsum()
    chunks = packets.assign(at=at).groupby(["session", "turn", "at"])["value"].sum().reset_index()
    last = chunks.groupby(["session", "turn"])["at"].transform("max")
    inner, first = chunks["at"] < last, chunks["at"] == 1
    parts = (first & inner, inner & ~first)
    return {name: chunks.loc[part, "value"].to_numpy(float) for name, part in zip(CHUNKS, parts, strict=True)}


def served(loads: Sequence[VoiceLoad], facts: dict[str, Any]) -> list[np.ndarray]:
    """Serve these loads in virtual time by a deployment of these facts; return METRICS of each, NaN for a missing
    one."""
    from harness.replays.expand import point_of
    from harness.replays.worker.replay import replay

    results = []
    with TemporaryDirectory() as folder:
        path = Path(folder) / DEPLOYMENT
        save_facts(facts, path, "")
        for load in loads:
            trace = Trace.from_columns(dict(load.columns), generator="measured_runs", params={}, seed=0, notes=[])
            point = point_of(trace, ENGINE, server={"deployment": str(path)}, client=load.client)
            run, kind, turns = replay(point, trace), point.setup.kind, pd.DataFrame(trace.columns())
            events = run.events.to_pandas()
            requests = kind.requests(turns, events, load.timing)
            made = kind.metrics(turns, events, run.steps.to_pandas(), requests, run.run_end_s, load.timing)
            results.append(np.array([made[name].value for name in METRICS], float))
    return results


def fit_voice(
    runs: Sequence[VoiceRun], base: str | None, gpu: str | None = None, show: Show = lambda what, done, total: None
) -> VoiceFit:
    """Fit the deployment `base`, on its own GPUs or as many of `gpu`, to measured runs. UserError where they cannot
    determine the constants, or `base` does not speak."""
    if base is None:
        raise UserError(
            f"{runs[0].name} is of a server that speaks; add --model with the deployment that it resembles, such as "
            "qwen3_omni_2gpu (`rehearse list deployments`)."
        )
    deployment = resolve(ServerParams.of({"deployment": base} | ({"gpu": gpu} if gpu else {})))
    if not deployment.speaks:
        raise UserError(
            f"--model {base} answers in text, and {runs[0].name} is of a server that speaks; give a deployment with a "
            "talker, such as qwen3_omni_2gpu."
        )
    loads = sorted((load for run in runs for load in loads_of(run)), key=_callers)
    labels = list(dict.fromkeys(load.label for load in loads))
    if len(labels) < 2:
        raise UserError(
            f"one load ({loads[0].name}) cannot be left out of a fit to the others; measure at least two, such as "
            "--sessions 2,8."
        )
    with TemporaryDirectory() as folder, workers(Path(folder) / LOG) as pool:
        fit = _Fit(base, deployment, gpu, pool, show, MOST_REPLAYS * (len(labels) + 1))
        (before,) = fit.replayed(loads, [{"like": base} | fit.on])
        held_out = dict[str, np.ndarray]()
        for label in labels:
            part = [load for load in loads if load.label == label]
            facts = fit.facts(fit.to([load for load in loads if load.label != label]))
            held_out |= zip((load.name for load in part), fit.replayed(part, [facts])[0], strict=True)
        constants = fit.to(loads)
        facts = fit.facts(constants)
        (fitted,) = fit.replayed(loads, [facts])
    server = runs[0].server.label or runs[0].name
    made = VoiceFit(base, facts, loads, before, [held_out[load.name] for load in loads], fitted, constants)
    facts |= {"title": f"{server}, fitted from {base}", "known_error": made.known_error}
    return made


def _callers(load: VoiceLoad) -> float:
    return load.client["c"] or np.inf


class _Fit:
    """Fits of a deployment's constants. `base`: its name. `gpu`: instead of its own. `most`: replays, for `show`."""

    def __init__(
        self, base: str, deployment: Deployment, gpu: str | None, pool: Executor, show: Show, most: int
    ) -> None:
        self._base, self._deployment, self._pool, self._show, self._most = base, deployment, pool, show, most
        self.on = {"gpu": gpu} if gpu else {}
        self._done = 0

    def to(self, loads: Sequence[VoiceLoad]) -> dict[str, Factor]:
        """Return the constants fitted to these loads, in order of their callers."""
        decoder, path = self._deployment.stages["talker"].decoder, self._deployment.overheads
        typed = all(load.typed for load in loads) and path.preprocess_text_s is not None
        outside = "preprocess_text_s" if typed else "preprocess_s"
        names = [*(f"talker.{name}" for name in TALKER), outside]
        default = np.array([*(getattr(decoder, name) for name in TALKER), getattr(path, outside)])
        frame_s, lowest = self._deployment.model.frame_s or 0.0, loads[0]
        host_s = WIDTH * lowest.pace * frame_s
        most = max(MANY, *(load.client["c"] or 0 for load in loads))
        widths = np.array([host_s, host_s / most, WIDTH * lowest.measured[DECIDE[0]]])
        chunks = self._read(CHUNKS[0], loads, frame_s) | self._read(CHUNKS[1], loads, frame_s)

        def constants(values: np.ndarray, why: Sequence[str]) -> dict[str, Factor]:
            each = zip(names, values, default, why, strict=True)
            return chunks | {n: Factor(value=rounded(v), default=rounded(was), fitted_to=w) for n, v, was, w in each}

        def replay(points: Sequence[np.ndarray]) -> list[np.ndarray]:
            tried = [self.facts(constants(values, ["a try"] * len(names))) for values in points]
            return [np.array(metrics)[:, DECIDE] for metrics in self.replayed(loads, tried)]

        measured = np.array([load.measured for load in loads])[:, DECIDE]
        delay = np.array([[1.0, 1.0 / load.reply_s] for load in loads])  # of TTFP and RTF
        values, spread = Search(measured, default, widths, replay, delays=[delay]).minimum()
        said = f"TTFP and RTF of {len(loads)} load{'' if len(loads) == 1 else 's'}"
        near = "its default: these loads hardly tell it from the others"
        why = [
            f"{said}, +- {1e3 * width * share:.2g} ms" if share < UNKNOWN else near
            for width, share in zip(widths, spread, strict=True)
        ]
        return constants(values, why)

    def _read(self, name: str, loads: Sequence[VoiceLoad], frame_s: float) -> dict[str, Factor]:
        """Return the frames of a chunk, if the packets show them."""
        frames = np.concatenate([load.chunks[name] for load in loads]) / frame_s
        usual = round(float(np.median(frames))) if len(frames) else 0
        share = float(np.mean(np.abs(frames - usual) < 0.05)) if usual else 0.0
        if share < COMMON or not self._deployment.async_chunk:
            return {}
        said = f"packets: {100 * share:.0f} % of {len(frames)} chunks"
        return {name: Factor(value=usual, default=getattr(self._deployment.codec, name), fitted_to=said)}

    def facts(self, constants: Mapping[str, Factor]) -> dict[str, Any]:
        """Return a deployment with these constants."""
        host, codec, overheads = dict[str, Any](), dict[str, Any](), dict[str, Any]()
        for name, each in constants.items():
            kind, value = ("measured", int(each.value)) if name in CHUNKS else ("calibrated", each.value)
            place = codec if name in CHUNKS else host if name.startswith("talker.") else overheads
            place[name.removeprefix("talker.")] = {"value": value, "source": f"[{kind}] {each.fitted_to}"}
        stages = {"talker": {"host": host}}
        changed = {"codec": codec, "stages": stages, "overheads": overheads}
        return {"like": self._base, "release": ""} | self.on | changed

    def replayed(self, loads: Sequence[VoiceLoad], deployments: Sequence[dict[str, Any]]) -> list[list[np.ndarray]]:
        """Return METRICS of each load by each deployment."""
        results = []
        for replay in [self._pool.submit(served, loads, facts) for facts in deployments]:
            results.append(replay.result())
            self._done += 1
            self._show("replays", self._done, max(self._most, self._done + 1))
        return results
