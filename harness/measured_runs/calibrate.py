"""A profile of a server by its measured runs: some loads are fitted, the others held out.

Every other load below saturation, in order of rate, is fitted.
"""

import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd

from engines.deployments import Deployment
from engines.devices.hardware import load_gpu
from engines.devices.host import as_shown
from engines.devices.step_file import Calibrated, Compared, Errors, Factor, Factors, Range
from engines.server import ServerParams, resolve
from harness.measured_runs.measured_run import LATENCIES, MeasuredRun, Request, SummaryRun, achieved_rate, slots_of
from harness.measured_runs.predict import DEPLOYMENT, LOG, MODEL, Planned, beside, plan, serve
from harness.measured_runs.replayed import Prefixes, queue_grows, summary_trace
from harness.measured_runs.search import UNKNOWN, Search
from harness.replays.worker.isolation import die_with_starter, send_output_to
from workloads.errors import UserError
from workloads.files.yaml_file import read_yaml

MOST_REQUESTS = 400
"""[chosen] Most requests of a load that are replayed. A fit then takes minutes."""

SHORT_S = 60.0
"""[chosen] Seconds that a load of an experiment in sum is replayed, after its prompts are in the prefix cache."""

Means = dict[str, float]
"""By LATENCIES, s; NaN where nothing was measured."""


@dataclass(frozen=True)
class Load:
    """One load. `slots`: sessions at once of a closed loop. `rate`: achieved, requests a second. `in_flight`: by
    Little's law, at most all. `counted`, by LATENCIES: which requests are behind the mean in `measured`."""

    label: str
    deployment: str
    columns: dict[str, np.ndarray]
    prefixes: Prefixes
    slots: int | None
    rate: float
    in_flight: float
    saturated: bool
    measured: Means
    counted: dict[str, np.ndarray]


def loads_of(planned: Planned, folder: Path) -> Iterator[Load]:
    """Return each part of a run by itself, from its first request on. `folder`: in which the run was planned."""
    run, path = planned.run, str(folder / planned.run.name / DEPLOYMENT)
    columns = {name: np.asarray(values) for name, values in planned.trace.columns().items()}
    if isinstance(run, SummaryRun):
        measured = dict.fromkeys(LATENCIES, np.nan) | run.means
        rate = run.achieved or sum(rate * s for rate, s in run.rates) / sum(s for _, s in run.rates)
        rows, prefixes, whole = _shortened(run, float(np.nan_to_num(measured["e2e"])))
        label, in_flight = f"{run.name}, {run.workload}", rate * measured["e2e"]
        counted = {str(name): whole for name in LATENCIES}
        yield Load(label, path, rows, prefixes, None, rate, in_flight, False, measured, counted)
        return
    table = beside(run, pd.DataFrame(index=range(len(run.requests))))
    for part, begin, end in run.parts:
        if end - begin < 2:
            continue
        last, slots = min(end, begin + MOST_REQUESTS), slots_of(part)
        order, sessions, prefixes = _sessions(run.requests[begin:last], planned.prefixes[begin:last], slots)
        here = table.iloc[begin + order]
        rows = {name: values[begin + order] for name, values in columns.items()} | sessions
        arrival = np.array([run.requests[begin + at].arrival_s for at in order]) - run.requests[begin].arrival_s
        e2e = here["measured_e2e"].to_numpy(float)
        # Later ones met requests that are not replayed.
        whole = np.full(len(here), True) if last == end else arrival + e2e <= arrival.max()
        seen = {name: here[f"measured_{name}"].to_numpy(float) for name in LATENCIES}
        counted = {name: whole & ~np.isnan(values) for name, values in seen.items()}
        measured = {name: float(seen[name][mask].mean()) if mask.any() else np.nan for name, mask in counted.items()}
        rate = achieved_rate(list(arrival)) or np.inf
        saturated = bool(here["saturated"].iloc[0]) or not np.isfinite(rate)
        if not saturated and here["queue"].isna().all():
            latencies = pd.DataFrame({"arrival": arrival, "predicted_e2e": np.nan_to_num(e2e)})
            saturated = queue_grows(latencies, [(rate, float(arrival.max()))])
        label, in_flight = f"{run.name}, {part}", min(rate * measured["e2e"], float(len(order)))
        yield Load(label, path, rows, prefixes, slots, rate, in_flight, saturated, measured, counted)


def _sessions(
    requests: Sequence[Request], prefixes: Prefixes, slots: int | None
) -> tuple[np.ndarray, dict[str, np.ndarray], Prefixes]:
    """Return the order of a load's requests by session and turn, the columns of their trace that say so, and the
    prefixes of the sessions. In a closed loop the first sessions come as measured and the others wait for a slot."""
    sessions: list[list[int]] = []
    open_ones: dict[str, list[int]] = {}
    for at, request in enumerate(requests):
        if request.think_s is not None and request.session in open_ones:
            open_ones[request.session].append(at)
        else:
            sessions.append([at])
            open_ones[request.session] = sessions[-1]
    firsts = [turns[0] for turns in sessions]
    begin_s = np.array([requests[at].arrival_s for at in firsts]) - requests[0].arrival_s
    if slots is not None:
        begin_s = np.minimum(begin_s, begin_s[min(slots, len(begin_s)) - 1])
    order = np.concatenate(sessions)
    session = np.repeat(np.arange(len(sessions)), [len(turns) for turns in sessions])
    turn = np.concatenate([np.arange(len(turns)) for turns in sessions])
    columns = {
        "session": session,
        "turn": turn,
        "arrival_s": np.where(turn == 0, begin_s[session], np.nan),
        "think_s": np.array([requests[at].think_s for at in order], float),
    }
    return order, columns, [prefixes[at] for at in firsts]


def _shortened(run: SummaryRun, e2e_s: float) -> tuple[dict[str, np.ndarray], Prefixes, np.ndarray]:
    """Return a part of an experiment: columns, prefixes, and which requests are counted. Each prompt comes once, then
    each load for `SHORT_S`, or for longer replies six times as long as one; counted is its steady middle, or all of it
    where no load is long enough to have one."""
    seconds, first = max(SHORT_S, 6 * e2e_s), run.rates[0][0]
    warm = ((first, (run.prompts or 0) / first),)
    loads = tuple((rate, min(seconds, held)) for rate, held in run.rates)
    trace, prefixes, earlier = summary_trace(replace(run, earlier=warm, rates=loads))
    rows = {name: np.asarray(values) for name, values in trace.columns().items()}
    counted, begin_s, arrival = np.full(len(prefixes), False), 2 * warm[0][1], rows["arrival_s"]
    for _, held in loads:
        counted |= (arrival >= begin_s + 2 * e2e_s) & (arrival <= begin_s + held - e2e_s)
        begin_s += 2 * held
    if not counted.any():
        counted[earlier:] = True
    return rows, prefixes, counted


def served(
    loads: Sequence[tuple[str, dict[str, np.ndarray], Prefixes, int | None]], profile: dict[str, Any] | None
) -> list[pd.DataFrame]:
    """Serve these loads in virtual time, one after the other, in a fresh process."""
    return [serve(path, rows, prefixes, "measured", profile, slots)[0] for path, rows, prefixes, slots in loads]


def means_of(load: Load, latencies: pd.DataFrame) -> Means:
    """Return the mean latencies of a load's replay, over the requests whose latencies were measured."""
    means = {}
    for name, mask in load.counted.items():
        values = latencies[f"predicted_{name}"].to_numpy(float)[mask]
        means[name] = float(np.nanmean(values)) if (~np.isnan(values)).any() else np.nan
    return means


NAMES = ("decode", "prompt", "host_s", "host_s_per_request", "client_s", "client_s_per_reply")
KERNELS = 2
"""Number of `NAMES` that are factors on kernels."""
KERNELS_WIDTH, HOST_WIDTH, CLIENT_WIDTH = 0.25, 0.1, 0.2
"""Standard deviations of the priors: of logarithms of factors on kernels; of the host in a step, as a share of the time
between tokens; of the client's path, as a share of TTFT. [chosen]"""
MANY = 10.0
"""Requests in flight at least, for which together the host's prior is as wide as for a step. [chosen] With few,
the times of requests and of steps cannot be separated, and the fit errs at other loads."""
FAR = 2.0
"""A server whose time between tokens is further than this from the model's is another kind of machine. The search and
the priors begin at its speed: slower kernels, or more time of the host in each step, whichever is nearer. [chosen]"""
MOST_REPLAYS = 37
"""Most replays of a search, each of all loads or of the fitted ones. Most searches end earlier."""

Show = Callable[[str, int, int], None]


def workers(log: Path) -> Executor:
    """Start fresh processes for replays, which last for a search, as each takes long to begin. `log`: their output."""
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(os.cpu_count(), context, _begin, (log,))


def _begin(log: Path) -> None:
    die_with_starter()
    send_output_to(log)


class Fit:
    """The fit of a server's factors to every other load. `loads`: in order of rate."""

    def __init__(self, loads: Sequence[Load], deployment: Deployment, pool: Executor, show: Show) -> None:
        self._loads, self._fitted, self._pool, self._show = loads, loads[::2], pool, show
        self._deployment = deployment
        (stage,) = deployment.stages.values()
        decoder = as_shown(stage.decoder, stage.async_scheduling)
        path = deployment.overheads
        client = path.preprocess_s, path.preprocess_s_per_reply
        self._default = np.array([1.0, 1.0, decoder.host_s, decoder.host_s_per_request, *client])
        lowest = self._fitted[0].measured
        host_s = HOST_WIDTH * np.nan_to_num(lowest["itl"], nan=0.01)
        in_flight = np.array([load.in_flight for load in self._fitted])
        most = max(MANY, *in_flight)
        client_s = CLIENT_WIDTH * np.nan_to_num(lowest["ttft"], nan=0.01)
        self._widths = np.array([KERNELS_WIDTH, KERNELS_WIDTH, host_s, host_s / most, client_s, client_s / most])
        # The client's path delays TTFT and E2E alike.
        delayed = 1.0 * (np.array(LATENCIES) != "itl")
        replies = np.ones(len(in_flight)), np.nan_to_num(in_flight)
        self._delays = [delayed * each[:, None] for each in replies]
        self._done = 0

    def profile(self, label: str) -> tuple[Calibrated, list[Means], list[Means]]:
        """Return the profile, and the means of all loads before and after the fit."""
        (before,) = self._replayed([None], self._loads)
        slower = self._fitted[0].measured["itl"] / before[0]["itl"]
        draft = self._draft(label, before)
        measured = np.array([[load.measured[name] for name in LATENCIES] for load in self._fitted])
        replay = partial(self._fitted_means, draft)
        search = Search(measured, self._default, self._widths, replay, KERNELS, self._delays)
        if max(slower, 1 / slower) > FAR:
            search.begin_at(self._begins(float(slower), before[0]["itl"]))
        values, spread = search.minimum()
        factors = self._factors(values, spread, search.middle)
        (after,) = self._replayed([draft.model_copy(update={"factors": factors})], self._loads)
        total = self._done
        self._show("replays", total, total)
        update = {"factors": factors, "held_out": self._compared(before, after, 1)}
        return draft.model_copy(update={**update, "fitted": self._compared(before, after, 0)}), before, after

    def _begins(self, slower: float, itl: float) -> list[np.ndarray]:
        """Return where the search may begin. `itl`: by the model, at the lowest load, where the server's is `slower`
        times as long."""
        kernels = self._default.copy()
        kernels[:KERNELS] = slower
        if slower <= 1:
            return [kernels]
        host = self._default.copy()
        host[NAMES.index("host_s")] += (slower - 1) * itl
        return [kernels, host]

    def _draft(self, label: str, before: list[Means]) -> Calibrated:
        rates, in_flight = ([getattr(each, name) for each in self._loads] for name in ("rate", "in_flight"))
        (stage,) = self._deployment.stages.values()
        return Calibrated(
            model=self._deployment.model.name,
            gpu=self._deployment.gpu.name,
            gpus=stage.split,
            date=datetime.now(UTC).date(),
            server=label,
            range=Range(
                lowest_rate=rounded(min(rates)),
                highest_rate=rounded(max(rates)),
                lowest_in_flight=rounded(min(in_flight)),
                highest_in_flight=rounded(max(in_flight)),
            ),
            factors=self._factors(self._default, np.ones(len(NAMES)), self._default),
            held_out=self._compared(before, before, 1),
            fitted=self._compared(before, before, 0),
        )

    def _factors(self, values: np.ndarray, spread: np.ndarray, middle: np.ndarray) -> Factors:
        """Return the factors of these values. `spread`: deviations after the fit, as shares of those of the priors.
        `middle`: of the priors."""
        count = len(self._fitted)
        quantities = f"TTFT, time between tokens and E2E of {count} load{'' if count == 1 else 's'}"
        as_modelled = np.array_equal(middle, self._default)
        near = "what the model says" if as_modelled else "the server's speed at the lowest load"
        made = {}
        for at, name in enumerate(NAMES):
            off = self._widths[at] * spread[at]
            within = f"+- {100 * off:.1f} %" if at < 2 else f"+- {1e3 * off:.3g} ms"
            unfitted = f"{near if at < 3 else 'its default'}: these loads hardly tell it from the others"
            made[name] = Factor(
                value=rounded(values[at]),
                default=rounded(self._default[at]),
                fitted_to=f"{quantities}, {within}" if spread[at] < UNKNOWN else unfitted,
            )
        return Factors(**made)

    def _fitted_means(self, draft: Calibrated, points: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return the fitted loads' means, a row each, with the values of each point."""
        unknown = np.ones(len(NAMES)), self._default
        profiles = [draft.model_copy(update={"factors": self._factors(values, *unknown)}) for values in points]
        return [
            np.array([[means[name] for name in LATENCIES] for means in load_means])
            for load_means in self._replayed(profiles, self._fitted)
        ]

    def _replayed(self, profiles: Sequence[Calibrated | None], loads: Sequence[Load]) -> list[list[Means]]:
        work = [(load.deployment, load.columns, load.prefixes, load.slots) for load in loads]
        contents = [profile and profile.model_dump(mode="json") for profile in profiles]
        replays = [self._pool.submit(served, work, content) for content in contents]
        means = []
        for replay in replays:
            means.append([means_of(*pair) for pair in zip(loads, replay.result(), strict=True)])
            self._done += 1
            self._show("replays", self._done, max(MOST_REPLAYS, self._done + 1))
        return means

    def _compared(self, before: list[Means], after: list[Means], first: int) -> Compared:
        loads = self._loads[first::2]
        return Compared(
            loads=[load.label for load in loads],
            before=errors_of(loads, before[first::2]),
            after=errors_of(loads, after[first::2]),
        )


def errors_of(loads: Sequence[Load], means: Sequence[Means]) -> Errors:
    """Return the mean relative errors of `means`, a row for each load."""
    by_latency: dict[str, float | None] = {}
    for name in LATENCIES:
        pairs = [(each[name], load.measured[name]) for load, each in zip(loads, means, strict=True)]
        errors = [abs(predicted / measured - 1) for predicted, measured in pairs if measured > 0]
        by_latency[name] = round(float(np.mean(errors)), 5) if errors else None
    return Errors(**by_latency)


def rounded(value: float) -> float:
    return float(f"{value:.5g}")


@dataclass(frozen=True)
class Row:
    """A load with its means before and after the fit."""

    load: Load
    before: Means
    after: Means


@dataclass(frozen=True)
class Calibration:
    """A calibration. `deployment`: content of the server's deployment file. `saturated`: loads that are neither fitted
    nor held out. `model`: content of the model's file, which is to be written; None: the deployment names one."""

    profile: Calibrated
    deployment: dict[str, Any]
    held_out: list[Row]
    fitted: list[Row]
    saturated: list[Load]
    model: dict[str, Any] | None = None


def calibrate(
    runs: Sequence[MeasuredRun | SummaryRun],
    gpu: str | None,
    model: str | None = None,
    tp: int | None = None,
    show: Show = lambda what, done, total: None,
) -> Calibration:
    """Fit a profile to measured runs. `gpu`: of runs that do not name theirs; `model`, `tp`: instead of the runs' own.
    UserError where they are of several servers, or cannot determine the factors."""
    if tp is not None:
        runs = [replace(run, server=replace(run.server, tp=tp)) for run in runs]
    if gpu is not None:
        load_gpu(gpu)
    elif silent := [run.name for run in runs if run.server.gpu is None]:
        raise UserError(f"{silent[0]} does not say on which GPU it ran; add --gpu h100, or another.")
    with TemporaryDirectory() as name:
        folder = Path(name)
        planned = [plan(run, folder, gpu or "h100", model) for run in runs]
        deployment = _one_server(planned, folder)
        loads = [load for each in planned for load in loads_of(each, folder)]
        loads.sort(key=lambda load: load.rate)
        below = [load for load in loads if not load.saturated]
        if len(below) < 2:
            raise UserError(_too_few(loads, below))
        with workers(folder / LOG) as pool:
            profile, before, after = Fit(below, deployment, pool, show).profile(_label(runs))
        rows = [Row(*each) for each in zip(below, before, after, strict=True)]
        first = folder / planned[0].run.name
        facts, made = read_yaml(first / DEPLOYMENT), next((first / MODEL).glob("*"), None)
        saturated = [each for each in loads if each.saturated]
        return Calibration(profile, facts, rows[1::2], rows[::2], saturated, made and read_yaml(made))


def _one_server(planned: Sequence[Planned], folder: Path) -> Deployment:
    servers: dict[tuple[str, str, int], Deployment] = {}
    for each in planned:
        deployment = resolve(ServerParams.of({"deployment": str(folder / each.run.name / DEPLOYMENT)}))
        (stage,) = deployment.stages.values()
        servers.setdefault((deployment.model.name, deployment.gpu.name, stage.split), deployment)
    if len(servers) > 1:
        names = "; ".join(f"{model} on {split} {gpu}" for model, gpu, split in servers)
        raise UserError(f"these runs are of several servers ({names}); give the runs of one server.")
    return next(iter(servers.values()))


def _too_few(loads: Sequence[Load], below: Sequence[Load]) -> str:
    more = "measure at least two rates that the server keeps up with"
    if len(loads) < 2:
        only = loads[0].label if loads else "of one request"
        return f"one load ({only}) cannot tell the factors of a server from one another; {more}."
    if not below:
        return f"all {len(loads)} loads are saturated, which tells nothing but the server's throughput; {more}."
    return f"of {len(loads)} loads only one ({below[0].label}) is below saturation; {more}."


def _label(runs: Sequence[MeasuredRun | SummaryRun]) -> str:
    names = list(dict.fromkeys(run.server.label or run.name for run in runs))
    label = names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
    releases = dict.fromkeys(run.server.vllm for run in runs if run.server.vllm)
    return f"{label} (vLLM {', '.join(releases)})" if releases else label
