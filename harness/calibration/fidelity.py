"""Fidelity: one trace served twice for real and once in virtual time, at two loads, with three separate results.

*Mechanics*: virtual time charged with the real run's own step costs; requests come into the queue when they did there.
(A real client is a millisecond late, and one that misses a step this way shifts every later batch. The report also has
the result with scheduled arrivals, and the lateness.) The virtual loop itself determines the requests of a step, the
number of steps and the time of each token. *Prediction*: scheduled arrivals, steps charged by a
model fitted to the other real run, or by a profile. *Noise*: the second real run against the first.
"""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from engines.core.device import Row
from engines.deployments import Deployment
from engines.deployments.available import check
from engines.devices.profile import Profile, load_profile
from engines.devices.step_time import StepTime, totals
from engines.models import Decoder
from engines.server import ServerParams, resolve
from harness.calibration.fidelity_report import (
    DRIFT,
    LOG,
    MEASURED,
    MECHANICS,
    OTHER_RUN,
    PROFILE,
    REPORT,
    REQUESTS,
    Agreement,
    Canary,
    Load,
    Mechanics,
    Prediction,
    Report,
    RunFacts,
    agreement,
    by_turn,
    canary_of,
    judge_mechanics,
    judge_prediction,
    moved,
)
from harness.calibration.fit import Drift, OwnCosts, fit_costs, nearest_canary, step_costs
from harness.experiments.provenance import environment
from harness.records.record import write_json
from harness.replays.expand import point_of
from harness.replays.point import ReplayPoint
from harness.replays.worker.fresh_process import Show, in_fresh_process
from harness.request_tables.request_table import request_table
from workloads.atomic_file import cannot_write
from workloads.devices import REAL_DEVICES
from workloads.errors import UserError, validate
from workloads.registry import make_trace
from workloads.trace import Trace

ENGINE = "vllm_omni"
"""Stock scheduling, on the only stage of a deployment that answers in text."""


@dataclass(frozen=True)
class Served:
    """A trace and the place where it is served: Poisson arrivals with `params` and `seed`, on `deployment`."""

    deployment: str
    params: dict[str, Any]
    seed: int

    def trace(self) -> Trace:
        return make_trace("poisson", self.params, self.seed)

    def point(self, trace: Trace, device: str = "virtual") -> ReplayPoint:
        """Return a point that serves `trace`, its own or one with arrivals of another run."""
        return point_of(trace, ENGINE, server={"deployment": self.deployment}, seed=self.seed, device=device)


@dataclass(frozen=True)
class RealRun:
    """A real run. `requests`: `agreement.by_turn`. `late_s`, by session: how much later than scheduled a request was in
    the stage's queue. `steps`: the loop's log; `costs`: `step_costs`. `canaries`: begin_s, end_s, seconds (of the
    kernel)."""

    requests: pd.DataFrame
    late_s: np.ndarray
    steps: pd.DataFrame
    costs: pd.DataFrame
    canaries: pd.DataFrame
    run_s: float


def serve_real(served: Served, device: str) -> RealRun:
    """Serve it in this process, which should have served nothing before, and record every step."""
    from engines.devices.watched import Canary, WatchedDevice
    from harness.replays.worker.replay import replay

    watched: list[WatchedDevice] = []

    def watch(server: Any) -> None:
        decoder = _decoder(server)
        for engine in server.engines:
            engine.device = WatchedDevice(engine.device, Canary(decoder.weight_bytes, device))
            watched.append(engine.device)

    trace = served.trace()
    run = replay(served.point(trace, device), trace, arrange=watch)
    (seen,) = watched
    steps = run.steps.to_pandas()
    canaries = pd.DataFrame(seen.canaries, columns=["begin_s", "end_s", "seconds"])
    held = [{"begin_s": begin, "end_s": end, **asdict(totals(rows))} for begin, end, rows in seen.steps]
    costs = step_costs(steps, pd.DataFrame(held), canaries)
    late_s = _late_s(run.events.to_pandas(), trace)
    return RealRun(_requests(run.events, trace), late_s, steps, costs, canaries, run.run_end_s)


def serve_virtual(
    served: Served,
    seconds: Callable[..., float],
    canary_s: Callable[[float], float] | None,
    late_s: np.ndarray | None = None,
) -> tuple[pd.DataFrame, int]:
    """Serve it on the virtual clock, its steps charged by `seconds` (`engines.devices.watched`). Return its requests as
    in `RealRun`, and the number of its steps. `late_s`, by session: delay of requests behind the schedule; latencies
    still count from the schedule."""
    from engines.devices.watched import ChargedDevice
    from harness.replays.worker.replay import replay

    def charge(server: Any) -> None:
        for engine in server.engines:
            engine.device = ChargedDevice(_decoder(server).vocab, seconds, canary_s)

    trace = served.trace()
    if late_s is not None:
        trace = _later(trace, late_s)
    run = replay(served.point(trace), trace, arrange=charge)
    steps = run.steps.to_pandas()
    return _requests(run.events, served.trace()), int((steps["requests"] > 0).sum())


def _requests(events: Any, trace: Trace) -> pd.DataFrame:
    """Return `agreement.by_turn`, from the trace's schedule: in the log a typed turn begins when its client reaches
    it."""
    turns = pd.DataFrame(trace.columns())
    table = request_table(events.to_pandas(), turns)
    for name in ("e2e_s", "ttft_s"):
        table[name] += table["turn_end_s"] - np.asarray(turns["arrival_s"])[table["session"]]
    return by_turn(table)


def _late_s(events: pd.DataFrame, trace: Trace) -> np.ndarray:
    """Return by session the seconds from when its request was due in the stage's queue, by the trace, to its arrival
    there."""
    arrived = events[events["kind"].astype(str) == "arrive"]
    planned = pd.DataFrame(trace.columns())
    due_s = np.asarray(planned["arrival_s"] + planned["network_s"])
    late_s = np.zeros(len(due_s))
    sessions = np.asarray(arrived["session"], int)
    late_s[sessions] = np.maximum(0.0, np.asarray(arrived["t"]) - due_s[sessions])
    return late_s


def _later(trace: Trace, late_s: np.ndarray) -> Trace:
    columns, header = trace.columns(), trace.header
    return Trace.from_columns(
        {**columns, "arrival_s": np.asarray(columns["arrival_s"]) + late_s},
        generator=header.generator,
        params=header.params,
        seed=header.seed,
        notes=[*header.notes, "requests come when they came in a real run"],
    )


def _decoder(server: Any) -> Decoder:
    deployment = server.gateway.deployment
    return deployment.stages[deployment.entry].decoder


LENGTHS: dict[str, Any] = {
    "modality": "text",
    "reply": "text",
    "prompt_tokens": 120.0,
    "prompt_sigma": 0.7,
    "max_prompt_tokens": 512,
    "reply_tokens": 96.0,
    "reply_sigma": 0.6,
    "max_reply_tokens": 256,
}
"""[chosen] medians, log-spreads and clips as in a chat of short turns; long enough for a TPOT, short enough for
hundreds of requests in a run."""

LOADS = {False: (0.7, 1.0), True: (0.7,)}
SECONDS = {False: 35.0, True: 10.0}
"""Shares of capacity, and how long requests arrive, by `quick`."""

MOST_REQUESTS = 1500
"""[chosen] bounds what is served in virtual time on a fast device, so that all of it stays below ten minutes."""

SATURATION = {False: 5, True: 3}
"""Requests for each that may run (max_num_seqs) that are waiting at once when capacity is measured."""


def fidelity(
    device: str,
    deployment: str = "llama_tiny",
    profile: Path | None = None,
    out: Path | None = None,
    quick: bool = False,
    show: Show = lambda what, done, total: None,
) -> Report:
    """Measure and judge both runs, and store report and tables in `out` (default: results/fidelity/DEVICE).

    `requests.parquet`: a row for each load, run, and request, latencies by source. `drift.parquet`: steps and canaries
    over time. UserError when this machine cannot run it.
    """
    begun = time.perf_counter()
    out = out or Path("results") / "fidelity" / device
    served = _checked(device, deployment)
    model = served.model.name
    device_profile = load_profile(profile, model, device) if profile else None
    if device_profile is not None and served.entry not in device_profile.stages:
        raise UserError(f"{profile} has no stage {served.entry}; measure it again with `rehearse profile`.")
    try:
        out.mkdir(parents=True, exist_ok=True)
        (out / LOG).write_text("")
    except OSError as error:
        raise cannot_write(out, error) from None
    # Before a child loads torch: the virtual clock knows of one queue for each device.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    total = 2 + 2 * len(LOADS[quick])
    most = served.stages[served.entry].max_num_seqs
    saturated, real = _serve_all(device, deployment, most, quick, out / LOG, show, total)
    loads, requests, drift = in_fresh_process(out / LOG, _compare_all, real, device_profile)
    show("virtual time", total, total)
    facts = environment()
    report = Report(
        device=device,
        deployment=deployment,
        model=model,
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        machine=facts["machine"],
        packages=facts["packages"],
        revision=facts["revision"],
        duration_s=round(time.perf_counter() - begun, 1),
        quick=quick,
        capacity=saturated,
        lengths=LENGTHS,
        profile=device_profile.origin if device_profile else None,
        loads=loads,
    )
    requests.to_parquet(out / REQUESTS, index=False)
    drift.to_parquet(out / DRIFT, index=False)
    write_json(out / REPORT, report.model_dump(mode="json"))
    return report


def _checked(device: str, deployment: str) -> Deployment:
    if device not in REAL_DEVICES:
        raise UserError(
            f"device {device!r} is not real execution, which fidelity compares with virtual time; "
            f"use --device {' or --device '.join(REAL_DEVICES)}."
        )
    resolved = resolve(validate(ServerParams, {"deployment": deployment}, "--deployment"))
    if len(resolved.stages) != 1 or resolved.speaks:
        raise UserError(
            f"deployment {deployment!r} has the stages {', '.join(resolved.stages)}; fidelity needs "
            "a deployment with one stage that answers in text, such as llama_tiny."
        )
    check(device, resolved)
    return resolved


def _serve_all(
    device: str, deployment: str, most: int, quick: bool, log: Path, show: Show, total: int
) -> tuple[float, list[tuple[float, Served, list[RealRun]]]]:
    """Return the capacity, and each load's share of it, trace and both real runs. `most`: requests that run at once.
    `total`: parts, for progress."""
    show("capacity", 0, total)
    burst = Served(deployment, {**LENGTHS, "rate": 1e6, "requests": SATURATION[quick] * most}, seed=1)
    saturated = capacity(in_fresh_process(log, serve_real, burst, device), burst)
    loads = []
    for share in LOADS[quick]:
        rate = round(share * saturated, 3)
        requests = max(20, min(MOST_REQUESTS, round(rate * SECONDS[quick])))
        served = Served(deployment, {**LENGTHS, "rate": rate, "requests": requests}, seed=2 + len(loads))
        runs = []
        for number in (1, 2):
            show(f"{100 * share:.0f} % load, real run {number}", 1 + 2 * len(loads) + number - 1, total)
            runs.append(in_fresh_process(log, serve_real, served, device))
        loads.append((share, served, runs))
    show("virtual time", total - 1, total)
    return saturated, loads


def capacity(run: RealRun, served: Served) -> float:
    """Return the requests/s that a saturated run sustains: tokens sampled per second while max_num_seqs ran and more
    requests waited, over the mean tokens of a reply. ValueError when that never was so."""
    running, waiting, begun_s = (np.asarray(run.steps[name]) for name in ("running", "waiting", "t_s"))
    full = np.flatnonzero((waiting > 0) & (running == running.max()))
    if len(full) < 2:
        raise ValueError("the server was never saturated")
    begin_s, end_s = begun_s[full[0]], begun_s[full[-1]]
    ended_s = np.asarray(run.costs["end_s"])
    sampled = np.asarray(run.costs["samples"])[(ended_s > begin_s) & (ended_s <= end_s)].sum()
    return float(sampled / (end_s - begin_s) / np.mean(served.trace().columns()["output_tokens"]))


def _compare_all(
    real: list[tuple[float, Served, list[RealRun]]], profile: Profile | None
) -> tuple[list[Load], pd.DataFrame, pd.DataFrame]:
    loads, requests, drift = [], [], []
    for share, served, runs in real:
        load, latencies = _compare(share, served, runs, profile)
        loads.append(load)
        requests.append(latencies.assign(load=share))
        first = fit_costs(runs[0].costs)
        drift += [_drift(run, first).assign(load=share, run=i) for i, run in enumerate(runs, start=1)]
    return loads, pd.concat(requests, ignore_index=True), pd.concat(drift, ignore_index=True)


def _compare(share: float, served: Served, runs: list[RealRun], profile: Profile | None) -> tuple[Load, pd.DataFrame]:
    models = [fit_costs(run.costs) for run in runs]
    canaries = [canary_of(run.canaries["begin_s"], run.canaries["seconds"], run.run_s) for run in runs]
    ratio = canaries[1].median_s / canaries[0].median_s
    mechanics, prediction, by_profile, tables = [], [], [], []

    def virtually(run: RealRun, index: int, source: str, costs: Any, canary_s: Any, late: bool = False) -> Agreement:
        requests, steps = serve_virtual(served, costs, canary_s, run.late_s if late else None)
        tables.append(_latencies(requests, index, source))
        return agreement(run.requests, requests, len(run.costs), steps)

    def predicted(run: RealRun, index: int, source: str, model: StepTime, canary_s: float) -> Prediction:
        def charged(name: str, factor: float) -> Agreement:
            def seconds(rows: Sequence[Row], now: float) -> float:
                return model.predict(rows) * factor

            return virtually(run, index, name, seconds, lambda _: canary_s * factor)

        slower = canaries[index].median_s / canary_s
        return Prediction(
            source=source,
            agreement=charged(source, 1.0),
            canary_ratio=round(slower, 4),
            scaled=charged(f"{source}, by canary", slower),
        )

    for index, run in enumerate(runs):
        tables.append(_latencies(run.requests, index, MEASURED))
        measured_costs, again = (OwnCosts(run.costs, models[index]) for _ in range(2))
        took = nearest_canary(run.canaries)
        met = virtually(run, index, MECHANICS, measured_costs, took, late=True)
        scheduled = virtually(run, index, f"{MECHANICS}, scheduled arrivals", again, took)
        matched = round(measured_costs.matched / measured_costs.charged, 4)
        mechanics.append(Mechanics(agreement=met, matched=matched, scheduled=scheduled))
        other = 1 - index
        prediction.append(predicted(run, index, OTHER_RUN, models[other], canaries[other].median_s))
        if profile is not None:
            stage = next(iter(profile.stages.values()))
            by_profile.append(predicted(run, index, PROFILE, stage.step_time, stage.drift.canary_median_s))
    noise = agreement(runs[0].requests, runs[1].requests, len(runs[0].costs), len(runs[1].costs))
    movement = moved(noise, ratio)
    verdicts = {
        "mechanics": judge_mechanics([one.agreement for one in mechanics]),
        "prediction": judge_prediction([one.agreement for one in prediction], movement),
    }
    if by_profile:
        since = max((one.canary_ratio for one in by_profile), key=lambda value: abs(value - 1))
        movement = {**movement, "the canary since the profile": abs(since - 1)}
        verdicts["profile"] = judge_prediction([one.agreement for one in by_profile], movement)
    load = Load(
        share=share,
        rate=served.params["rate"],
        requests=served.params["requests"],
        runs=[_facts(run, canary) for run, canary in zip(runs, canaries, strict=True)],
        mechanics=mechanics,
        prediction=prediction,
        profile=by_profile,
        noise=noise,
        canary_moved=round(ratio, 4),
        verdicts=verdicts,
    )
    return load, pd.concat(tables, ignore_index=True)


def _facts(run: RealRun, canary: Canary) -> RunFacts:
    tpot, e2e = (np.nanmedian(run.requests[name]) for name in ("tpot", "e2e"))
    seconds = np.asarray(run.costs["seconds"])
    late_p50, late_p90 = np.quantile(run.late_s, [0.5, 0.9])
    return RunFacts(
        seconds=round(run.run_s, 3),
        steps=len(run.costs),
        requests=len(run.requests),
        tpot_p50_s=round(float(tpot), 6),
        e2e_p50_s=round(float(e2e), 6),
        step_mean_s=round(float(seconds.mean()), 6),
        host_share=round(float(1 - np.sum(run.costs["device_s"]) / seconds.sum()), 4),
        late_p50_s=round(float(late_p50), 6),
        late_p90_s=round(float(late_p90), 6),
        canary=canary,
    )


def _latencies(requests: pd.DataFrame, index: int, source: str) -> pd.DataFrame:
    return requests.reset_index().assign(run=index + 1, source=source)


def _drift(run: RealRun, first: StepTime) -> pd.DataFrame:
    """Return over time (at_s) steps over the fit to the first run (kind "steps") and the canary's seconds (kind
    "canary")."""
    drift = Drift(run.costs, first)
    times = run.canaries["begin_s"]
    steps = pd.DataFrame({"kind": "steps", "at_s": times, "value": [drift(at_s) for at_s in times]})
    canaries = pd.DataFrame({"kind": "canary", "at_s": times, "value": run.canaries["seconds"]})
    return pd.concat([steps, canaries], ignore_index=True)
