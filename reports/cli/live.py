"""`rehearse live`: call a server that is already running and find out how many concurrent calls it can handle."""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from harness.clocks.ctrl_c import stopped
from harness.live.live_options import OPTIONS
from reports.cli.live_loads import Load, ends_of_sweep, load_of
from reports.cli.output import AS_CSV, AS_JSON, COLUMNS, Form, asked_metrics, form_of
from reports.cli.settings import SETTINGS, flag, number, option
from reports.cli.stage import Stage
from reports.tables.labels import counted, listed
from workloads.bounds import MOST_SEED
from workloads.errors import UserError, printable

if TYPE_CHECKING:
    from harness.client.client_params import ClientParams
    from harness.experiments.experiment import Experiment
    from harness.experiments.grid import Traces
    from harness.live.live_experiment import End
    from harness.live.live_slo import Asked
    from harness.live.point import LivePoint
    from harness.live.run.duration import Duration
    from harness.slo.search import Step
    from harness.slo.targets import Target, Verdict
    from workloads.trace import Trace

REPEATS, SEARCH_REPEATS = 1, 3
"""Runs of each number, and of each one that a search tries. [chosen]"""
DRAWN = 10**9
"""Seeds of users that are drawn are below it, so that they are short enough to type. [chosen]"""
Ask = Callable[..., "Experiment"]
"""Returns the experiment with these loads, a mapping of each to its end; `rates`: they are calls per second."""
Present = Callable[["Experiment", Path], "Verdict | None"]
"""Prints the results of the experiment in that folder and returns the verdict."""


def live(
    context: typer.Context,
    url: Annotated[str, typer.Argument(help=OPTIONS["url"].help, metavar=OPTIONS["url"].name)],
    dialect: str = option("auto", *OPTIONS["dialect"]),
    audio: Path | None = option(None, *OPTIONS["path"]),
    data: Path | None = option(None, *OPTIONS["data"]),
    workload: str | None = option(None, *OPTIONS["workload"]),
    sessions: str | None = option(None, *OPTIONS["c"]),
    rate: str | None = option(None, *OPTIONS["rate"]),
    sweep: int | None = number(
        None, "N rates up to what --sessions users get (256 by default), as guidellm's sweep.", most=100
    ),
    duration: float | None = option(None, *OPTIONS["stop_after_s"]),
    settings: list[str] = SETTINGS,
    repeats: int | None = number(None, *OPTIONS["seeds"]),
    slo: str | None = option(
        None,
        'What each load must meet: "ttfp_p90<=800ms continuity>=95%", the default for voice; for text "ttft_p90<=2s".',
        "TARGETS",
    ),
    find: str | None = option(None, 'Largest number of calls with "ttfp_p90<=800ms continuity>=95%".', "TARGETS"),
    to: int | None = number(None, "Where --find stops; default: 256."),
    users_seed: int | None = number(None, *OPTIONS["users_seed"], least=0, most=MOST_SEED),
    same_users: bool = flag(OPTIONS["same_users"].name, OPTIONS["same_users"].help),
    shards: int | None = number(None, *OPTIONS["shards"]),
    scrape: str | None = option(None, *OPTIONS["scrape"]),
    token_env: str | None = option(None, *OPTIONS["token_env"]),
    extra_body: str | None = option(None, *OPTIONS["extra_body"]),
    headers: list[str] = option([], *OPTIONS["headers"]),
    body_names: list[str] = option([], *OPTIONS["body_names"]),
    session: Path | None = option(None, *OPTIONS["session"]),
    ca: str | None = option(None, *OPTIONS["ca"]),
    insecure: bool = flag(OPTIONS["insecure"].name, OPTIONS["insecure"].help),
    client_cert: str | None = option(None, *OPTIONS["client_cert"]),
    client_key: str | None = option(None, *OPTIONS["client_key"]),
    unix_socket: str | None = option(None, *OPTIONS["unix_socket"]),
    preset: str | None = option(
        None, "openai_reasoning (max_completion_tokens) or azure (header api-key from AZURE_OPENAI_API_KEY).", "NAME"
    ),
    save_audio: int | None = number(None, *OPTIONS["save_audio"]),
    out: Path | None = option(
        None, "Results directory; default: results/live/HOST-PORT/TIME, and a link latest.", "DIR"
    ),
    resume: bool = flag("--resume", "Continue an interrupted run: the one in --out, else the latest of URL."),
    label: str = option("", *OPTIONS["label"]),
    dry_run: bool = flag(
        "--dry-run", "Print the points and call no server; with --out also write the plan, as for Locust."
    ),
    as_json: bool = AS_JSON,
    as_csv: bool = AS_CSV,
    columns: str | None = COLUMNS,
) -> None:
    """Call URL as N concurrent users and judge whether it can handle them: PASS, FAIL or INCONCLUSIVE.

    Exit status: 0 every load passes, or --find found a number. 1 a load misses a target, or the server failed. 2 usage
    error. 3 neither: too few turns, or INVALID because a machine was too slow. The same command again measures
    again. `rehearse list workloads speech` shows what users do.

    `rehearse live ws://127.0.0.1:8765/v1/realtime --sessions 8,16,32`

    `rehearse live URL --sessions 8 --slo "ttfp_p90<=800ms continuity>=95%"`

    `rehearse live URL --find "ttfp_p90<=800ms continuity>=95%" --to 128`

    `rehearse live URL --dialect openai --set model=NAME --audio recordings`

    `rehearse live http://127.0.0.1:8000/v1 --rate 10 --duration 30`

    `rehearse live http://127.0.0.1:8000/v1 --data chats.json --sessions 2,4,8`

    `rehearse live URL --workload duplex --sessions 1,16,64`
    """
    stage = context.with_resource(Stage())
    stage("loading the client")
    metrics, form = asked_metrics(columns), form_of(as_json, as_csv)
    load = load_of(sessions, rate, find, to) if sweep is None else ends_of_sweep(sessions, rate, find, resume)
    if slo is not None and find is not None:
        raise UserError("--slo judges the loads that are named and --find searches one; leave one out.")
    if duration is not None and not 1 <= duration <= 86_400:
        raise UserError(f"--duration {duration:g}: give a length from 1 to 86400 s.")
    from harness.experiments.settings import read_settings
    from harness.live.endpoints.target import TargetParams
    from harness.live.expand import expand
    from harness.live.live_experiment import ends, live_experiment
    from reports.cli.live_folder import check_same, earlier, new_folder
    from reports.cli.live_request import shape
    from reports.cli.measuring import check_new, show_points
    from reports.live.live_connection import connection_notes

    options = {name: context.params[name] for name in OPTIONS if name in TargetParams.model_fields}
    target = {name: value for name, value in options.items() if value not in (None, []) and value is not False}
    target |= shape(preset, extra_body, headers, body_names, session)
    chosen = read_settings(settings)
    if data is not None and "path" in chosen:
        raise UserError(f"--data {data} and --set path={chosen['path']}: leave one out.")
    if workload is not None and chosen.setdefault("workload", workload) != workload:
        raise UserError(f"--workload {workload} and --set workload={chosen['workload']}: leave one out.")
    runs = repeats or (SEARCH_REPEATS if load.targets else REPEATS)
    stored = earlier(url, out) if resume else None
    seed = secrets.randbelow(DRAWN) if stored is None else stored[1].set.get("users_seed")
    if seed is not None:  # runs of earlier versions have none
        target.setdefault("users_seed", seed)
    ask = partial(
        live_experiment,
        target,
        chosen,
        rates=load.rates,
        repeats=runs,
        audio=audio,
        texts=data,
        label=label,
        most=(load.most or None) if load.rates else None,
    )
    least = dict.fromkeys(load.amounts, (duration or 60.0, None))
    asked, counts = _asked(ask(least), slo, load)  # refused here if it is too much for any run
    stored_ends = ends(stored[1]) if stored is not None and duration is None else {}
    stage("planning the calls" + ("" if audio is None else f", with the sound of {printable(str(audio))}"))
    plan = _Plan(ask, load, asked.targets if sweep is None else (), counts, runs, duration, stored_ends)
    experiment = plan.experiment(load.amounts)
    if sweep is not None:
        experiment = experiment.model_copy(update={"seeds": experiment.seeds[:1]})
        partial(ask, rates=True)(least)  # refused here if no rate is for the workload
    points = expand(experiment, plan.traces)
    if stored is not None:
        check_same(*stored, experiment, search=bool(load.targets))
    elif out is not None:
        check_new(out)
    if dry_run:
        show_points(points, form)
        for note in connection_notes(experiment.set) if form == "table" else ():
            typer.echo(note)
        if out is not None:  # Locust's part of the experiment, and its targets
            from harness.records.results import claim

            with claim(out, experiment):
                asked.write(out)
        return
    stage("loading the load generator")
    from harness.live.run import live_executor  # noqa: F401

    stage("")  # a run shows itself
    present = partial(_present, form=form, asked=asked, metrics=metrics)
    folder = stored[0] if stored is not None else out
    with new_folder(url) if folder is None else nullcontext(folder) as folder:
        if sweep is not None:
            status = _swept(plan, experiment, points, folder, sweep, asked, present)
        elif load.targets:
            status = _searched(plan, experiment, folder, present)
        else:
            status = _measured(experiment, points, folder, present, resume)
    raise typer.Exit(status)


def _asked(experiment: Experiment, slo: str | None, load: Load) -> tuple[Asked, str]:
    """Return the targets, and what a load is a number of. UserError for targets that are none, or that no such run can
    meet."""
    from harness.live.live_slo import Asked, check_targets, counted_as, default_targets, served, with_failures
    from harness.slo.targets import parse_targets

    targets = parse_targets(slo, "--slo") if slo is not None else load.targets
    check_targets(experiment, targets, "--find" if load.targets else "--slo")
    what = served(experiment)
    judged = with_failures(targets) if targets else default_targets(what)
    return Asked(judged, bool(targets)), counted_as(what, "rate" if load.rates else None)


def _measured(experiment: Experiment, points: list[Any], folder: Path, present: Present, resume: bool) -> int:
    """Return the exit status: of the verdict, or of the points if there are no targets."""
    from harness.records.results import unfinished
    from reports.cli.live_view import Calls
    from reports.cli.measuring import measure_points
    from reports.live.live_verdict import EXIT

    if resume and not unfinished(folder / "points", points):
        raise UserError(
            f"{folder} is finished, with {len(points)} of {len(points)} points measured; leave --resume out to measure "
            "again, or give more --repeats to add runs."
        )
    verdicts: list[Verdict | None] = []
    status = measure_points(experiment, points, folder, Calls(), lambda: verdicts.append(present(experiment, folder)))
    return status if verdicts[0] is None else EXIT[verdicts[0]]


def _swept(
    plan: _Plan,
    ends: Experiment,
    points: Sequence[LivePoint],
    folder: Path,
    number: int,
    asked: Asked,
    present: Present,
) -> int:
    """Measure the two loads in `points`, then this number of rates, and return the exit status."""
    from harness.live.expand import expand
    from harness.live.live_slo import counted_as, served
    from reports.cli.live_sweep import between

    rates, status = between(ends, points, folder, number)
    if status:
        return status
    counts = counted_as(served(ends), "rate")
    load = Load(rates, True, (), 0)
    plan = _Plan(partial(plan.ask, rates=True), load, asked.targets, counts, plan.runs, plan.seconds, {})
    experiment = plan.experiment(rates)
    return _measured(experiment, expand(experiment, plan.traces), folder, present, resume=False)


def call_as_recorded(
    experiment: Experiment, points: list[Any], out: Path | None, form: Form, metrics: Sequence[str]
) -> int:
    """Measure users who come at the times of a record, in `out` (None: as `live` has it), and return the exit status of
    the verdict by the default targets."""
    from reports.cli.live_folder import new_folder
    from reports.cli.measuring import check_new

    if out is not None:
        check_new(out)
    asked, _ = _asked(experiment, None, Load([], False, (), 0))
    present = partial(_present, form=form, asked=asked, metrics=metrics)
    with new_folder(str(experiment.set["url"])) if out is None else nullcontext(out) as folder:
        return _measured(experiment, points, folder, present, resume=False)


def _present(experiment: Experiment, folder: Path, form: Form, asked: Asked, metrics: Sequence[str]) -> Verdict | None:
    """Present a run, store the targets and the verdict in its folder, and return the verdict; None without targets."""
    from reports.cli.present import present
    from reports.live.live_verdict import live_verdict
    from reports.runs.measured import load_run

    asked.write(folder)
    run = load_run(folder, experiment)
    verdict = live_verdict(run)
    if verdict is not None:
        verdict.write(folder)
    present(run, form, metrics, verdict)
    return None if verdict is None else verdict.verdict


def _searched(plan: _Plan, experiment: Experiment, folder: Path, present: Present) -> int:
    """Search from the one load of `experiment`, then print the result, the table of all tried loads, and the basis.
    Return the exit status of the verdict."""
    from harness.live.expand import expand
    from harness.live.verdict import load_step
    from harness.records.record import write_json
    from harness.records.results import SEARCH, write_summary
    from harness.slo.search import CLOSE, Bounds, Question, Searches, search
    from reports.cli.live_view import Calls
    from reports.cli.measuring import all_measured, measure_points
    from reports.live.live_verdict import EXIT
    from reports.runs.repeats import check_known, record_of, repeat

    targets, seeds, most = plan.targets, len(experiment.seeds), 1
    ((over, (first,)), *_) = experiment.grid.items()
    assert isinstance(first, int), "a search goes over numbers of sessions"
    tried: dict[int, list[str]] = {}

    def at(numbers: Sequence[int], times: int) -> Experiment:
        return plan.experiment(numbers).model_copy(update={"seeds": list(range(seeds * times))})

    def measure(n: int, times: int) -> Step:
        nonlocal most
        most = max(most, times)
        points = expand(at([n], times), plan.traces)
        before = [id for number, ids in tried.items() for id in ids if number != n]
        tried[n] = [point.id for point in points]
        measure_points(at(sorted(tried), most), points, folder, Calls(), before=before)
        records = [record_of(folder, id) for id in tried[n]]
        repeats = [repeat(record, targets) for record in records]
        finished = [each for each, record in zip(repeats, records, strict=True) if record.error is None]
        check_known("--find", targets, finished)
        return load_step(n, records, repeats, targets)

    bounds = Bounds(1, plan.load.most, first, whole=True, close=CLOSE)
    question = Question(over, targets, bounds, tuple(experiment.seeds), plan.counts)
    result = search(measure, question)
    write_json(folder / SEARCH, Searches(question, (result,)).as_dict())
    write_summary(folder, [id for n in sorted(tried) for id in tried[n]])
    with stopped(all_measured(folder)):
        present(at(sorted(tried), most), folder)
    return EXIT[result.verdict]


@dataclass
class _Plan:
    """Ends of the loads. `counts`: what a load is a number of. `seconds`: of every load, as the user set it; None:
    until its targets can be decided. `stored`: ends of resumed loads. `traces`: traces made on the way."""

    ask: Ask
    load: Load
    targets: tuple[Target, ...]
    counts: str
    runs: int
    seconds: float | None
    stored: Mapping[float, End]
    traces: Traces = field(default_factory=dict)
    _ends: dict[float, End] = field(default_factory=dict)

    def experiment(self, amounts: Sequence[float]) -> Experiment:
        """Return the experiment with these loads, each as long as planned, and print new durations."""
        for amount in amounts:
            if amount not in self._ends:
                self._ends[amount] = self.stored.get(amount) or self._planned(amount)
        return self.ask({amount: self._ends[amount] for amount in amounts})

    def _planned(self, amount: float) -> End:
        from harness.live.expand import expand
        from harness.live.run.duration import given, planned

        def users(seconds: float) -> tuple[Trace, ClientParams]:
            asked = self.ask({amount: (seconds, None)})
            point = expand(asked.model_copy(update={"seeds": asked.seeds[:1]}), self.traces)[0]
            trace = next(each for each in self.traces.values() if each.header.hash == point.trace_hash)
            return trace, point.setup.client

        if not self.targets:
            return self.seconds or 60.0, None
        if self.seconds is None:
            length = planned(users, self.targets, self.runs)
        else:
            length = given(self.seconds, users, self.targets, self.runs)
        name = f"{amount:g} {self.counts}{'' if amount == 1 else 's'}{' a second' if self.load.rates else ''}"
        for line in _duration_lines(length, name, self.runs, self.seconds is not None):
            typer.echo(line, err=True)
        return length.seconds, length.judged


def _duration_lines(length: Duration, name: str, runs: int, chosen: bool) -> list[str]:
    """`8 calls: about 24 turns per minute, 111 judged: at most 4 min 40 s`; for a duration set by the user only the
    missing turns."""
    from harness.slo.targets import needed

    never = [each for each in length.lacking if needed(each) is None]
    lacking = [each for each in length.lacking if needed(each) is not None]
    lines = [f"{name}: no number of turns can show {each}; give a target that leaves room." for each in never]
    names = listed([str(each) for each in lacking]) if lacking else ""
    enough = length.seconds < length.wanted_s < math.inf
    longer = f"--duration {length.wanted_s:g} is long enough" if enough else "the workload has too few of them"
    turns = counted(length.turns, "turn")
    if chosen and lacking:
        lines.append(
            f"--duration {length.seconds:g} is too short for {name}: about {turns}, {length.needed} needed to decide "
            f"{names}; {longer}."
        )
    elif not chosen:
        each = "" if runs == 1 else f"{runs} runs of "
        judged = f"{length.judged} judged" if length.judged is not None else f"{length.needed} needed"
        line = f"{name}: about {length.per_minute:.0f} turns per minute, {judged}: "
        line += f"{each}{'at most ' if length.judged is not None else ''}{_length(length.seconds)}"
        if lacking:
            line += f", which is the limit and leaves {names} undecided; {longer}"
        lines.append(line)
    return lines


def _length(seconds: float) -> str:
    """`3 min 5 s`."""
    minutes, rest = divmod(math.ceil(seconds), 60)
    return " ".join([*([f"{minutes} min"] if minutes else []), *([f"{rest} s"] if rest or not minutes else [])])
