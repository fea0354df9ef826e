"""`rehearse live URL` as an ordinary experiment, whose engine is the server behind the URL."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from harness.experiments.experiment import ENDPOINT, Experiment
from harness.experiments.settings import override
from harness.live.endpoints.target import TargetParams, check_secrets
from harness.live.endpoints.transport.route import SCHEMES, proxy_of
from harness.live.expand import ENDPOINTS
from harness.live.kinds import named
from harness.live.live_options import OPTIONS, written
from workloads.errors import UserError, unknown, validate
from workloads.registry import WORKLOADS

SPOKEN, TYPED, CONVERSATIONS = "speech", "sharegpt", "conversations"
"""Workloads where none is set: speech, real or synthetic, and chat completions with ShareGPT's lengths or a file's
text. [chosen]"""
WITH_TEXT = (".json", ".jsonl")
"""Files of conversations with their text; others have lengths alone."""
MOST_REPLY_TOKENS = 128
"""Longest reply that is asked for, about 36 s of speech: who begins in the last second keeps the run going. [chosen]"""
NOT_SET = ("url", "c", "most", "save_audio", "stop_after_s")
"""Parameters that `--set` does not take, as the plan is made of them."""
LENGTHS, TURNS = ("stop_after_s", "duration_s"), "stop_after_turns"
"""Parameters with the duration, of users and of frames, and with the turns that are judged, which end a run too."""
DRAIN_S = 600.0
"""After the duration, for what has begun to end, before a point is given up. [chosen]"""

End = tuple[float, int | None]
"""The end of a run: its longest duration, s, and the turns that it judges; None: all."""


def live_experiment(
    target: Mapping[str, Any],
    settings: Mapping[str, str],
    loads: Mapping[float, End],
    *,
    rates: bool = False,
    repeats: int = 1,
    audio: Path | None = None,
    texts: Path | None = None,
    label: str = "",
    most: int | None = None,
) -> Experiment:
    """Return the experiment of a live run.

    `loads`: each load with its end; with `rates` new calls per second in an open loop, else concurrent calls in a
    closed one. `settings`: of `--set`, over everything else. `label`: the server's build. UserError for settings that
    cannot be combined. `audio`: recordings that users speak; `texts`: conversations whose text they send. The users of
    a load depend on it, on its duration and on the target's users_seed alone. `most`: largest number of calls at
    once of an open loop.
    """
    for name in ("url", "text_url", "scrape"):
        check_secrets(str(target.get(name) or settings.get(name, "")))
    target = by_environment(target, settings)
    params = validate(TargetParams, target, "live")
    params.request_headers()  # said now where token_env or a header names nothing
    params.route().tls()  # and where a file holds no certificate
    if texts is not None:
        settings = {**settings, "path": str(texts)}
    workload = settings.get("workload", _default_workload(params, settings))
    if workload not in WORKLOADS:
        raise unknown("workload", workload, WORKLOADS)
    fields = WORKLOADS[workload].Params.model_fields
    fixed = _added(params.is_text)
    if texts is not None and workload != CONVERSATIONS:
        fix = f"set workload={CONVERSATIONS}" if params.is_text else "give the http:// url of chat completions"
        raise UserError(f"--data has text for workload {CONVERSATIONS}, and workload is {workload}; {fix}.")
    if audio is not None:
        if not _is_recorded(workload):
            raise UserError(
                f"--audio is for workloads {' and '.join(filter(_is_recorded, WORKLOADS))}, and workload is "
                f"{workload}; leave one of them out."
            )
        fixed["path"] = str(audio)
    kind = named(WORKLOADS[workload].serves)
    if params.save_audio and kind.name != "duplex":
        raise UserError(
            f"--save-audio keeps calls on open microphones, and workload is {workload}; give --workload duplex, or "
            "leave it out."
        )
    if most is not None:
        if kind.name == "frames":
            raise UserError(f"--sessions is no limit of --rate for workload {workload}; leave one of them out.")
        fixed["most"] = most
    fastest = _last_rate(fields, settings)
    made = [
        kind.load(workload, fields, 0 if rates else int(load), max(load, fastest) if rates else None, length_s)
        for load, (length_s, _) in loads.items()
    ]
    axis, load_settings = made[0][0], [each for _, each in made]
    lengths_s, turns = zip(*loads.values(), strict=True)
    if kind.name == "turns" and None not in turns:
        load_settings = [{**each, TURNS: judged} for each, judged in zip(load_settings, turns, strict=True)]
    along = {name: [each[name] for each in load_settings] for name in load_settings[0]}
    fixed |= {name: values[0] for name, values in along.items() if len({*values}) == 1}
    takes = {*fields, LENGTHS[0], TURNS, "most"}
    span_s = " to ".join(f"{length_s:g}" for length_s in sorted({min(lengths_s), max(lengths_s)}))
    data = {
        "name": "live",
        "title": f"{params.url}, called for {span_s} s",
        "engines": [ENDPOINT],
        "workload": workload,
        "device": "live",
        "set": {**target, **{name: value for name, value in fixed.items() if name in takes}},
        "grid": {axis: list(loads)},
        "along": {name: values for name, values in along.items() if name in takes and name not in fixed},
        "label": label,
        "seeds": repeats,
        "timeout_s": max(lengths_s) + DRAIN_S,
    }
    more = {name: text for name, text in settings.items() if name != "workload"}
    for name in more:
        if name in ("engine", "device"):
            raise UserError(f"--set {name}: rehearse live calls the url alone; see rehearse run for engines of ours.")
        if name in NOT_SET:
            raise UserError(f"--set {name}: give it as {OPTIONS[name].name} instead.")
    return override(validate(Experiment, data, "live"), more, ENDPOINTS)


def by_environment(target: Mapping[str, Any], settings: Mapping[str, str]) -> dict[str, Any]:
    """Return a target with the proxy that the environment names for it, unless it names one or a Unix socket."""
    given = {**target, **settings}
    if given.get("unix_socket") or given.get("proxy"):
        return dict(target)
    addresses = [str(given[name]) for name in ("url", "text_url") if given.get(name)]
    proxies = set()
    for address in addresses:
        try:
            if urlsplit(address).scheme in SCHEMES:
                proxies.add(proxy_of(address))
        except UserError:
            raise
        except ValueError:  # no address, which is refused with the other parameters
            continue
    if len(proxies) > 1:
        raise UserError(
            f"the environment names different proxies for url {addresses[0]} and text_url {addresses[1]}; name both "
            "hosts in NO_PROXY, or one proxy for both."
        )
    (proxy,) = proxies or {None}
    return {**target, **({} if proxy is None else {"proxy": proxy})}


def ends(experiment: Experiment) -> dict[float, End]:
    """Return the end of each load of a stored run."""
    loads = [float(str(load)) for load in next(iter(experiment.grid.values()), [])]

    def of(name: str) -> Sequence[Any]:
        return experiment.along.get(name) or [experiment.set.get(name)] * len(loads)

    length = next((name for name in LENGTHS if name in {**experiment.set, **experiment.along}), None)
    if length is None:
        return {}
    return {load: (float(seconds), turns) for load, seconds, turns in zip(loads, of(length), of(TURNS), strict=True)}


def of_the_load(experiment: Experiment) -> set[str]:
    """Return the names of the settings that follow from a load and its duration."""
    workload = WORKLOADS[experiment.workload]
    kind, fields = named(workload.serves), workload.Params.model_fields
    return {TURNS, *kind.load(experiment.workload, fields, 1, None, 1.0)[1]}


def asked(experiment: Experiment) -> str:
    """Return a live experiment in the words of the command line: `--sessions 4,16 --duration 30 --set p=0.5`, without
    settings that the command adds itself, such as the spare sessions of a closed loop."""
    text = TargetParams.model_construct(url=str(experiment.set.get("url", ""))).is_text
    defaults = {"dialect": TargetParams.model_fields["dialect"].default, **_added(text)}
    load = of_the_load(experiment)
    rates = experiment.grid.keys().isdisjoint(("c", "sessions"))  # else a rate is that of calls in frames

    def word(name: str, values: Sequence[Any]) -> str:
        name = "data" if name == "path" and experiment.workload == CONVERSATIONS else name
        text = ",".join(f"{value:g}" if isinstance(value, float) else str(value) for value in values)
        if isinstance(values[0], Mapping):
            return written(name, values[0])
        by_option = name in OPTIONS and (rates or name != "rate")
        by_option = by_option and (name != "path" or _is_recorded(experiment.workload))
        if by_option and values == [True]:
            return OPTIONS[name].name
        return f"{OPTIONS[name].name} {text}" if by_option else f"--set {name}={text}"

    words = [word(name, values) for name, values in experiment.grid.items()]
    for name in load.intersection(LENGTHS):
        if lengths_s := [float(str(value)) for value in experiment.along.get(name, ())]:
            words.append(f"for {min(lengths_s):g} to {max(lengths_s):g} s")
        if name in experiment.set:
            words.append(f"{OPTIONS['stop_after_s'].name} {experiment.set[name]:g}")
    if len(experiment.seeds) > 1:
        words.append(word("seeds", [len(experiment.seeds)]))
    if experiment.workload not in ((TYPED, CONVERSATIONS) if text else (SPOKEN,)):
        words.append(word("workload", [experiment.workload]))
    words += [
        word(name, [value])
        for name, value in experiment.set.items()
        if name not in ("url", *load) and defaults.get(name) != value
    ]
    return " ".join(words)


def _default_workload(target: TargetParams, settings: Mapping[str, str]) -> str:
    if not target.is_text:
        return SPOKEN
    return CONVERSATIONS if Path(settings.get("path", "")).suffix in WITH_TEXT else TYPED


def _last_rate(fields: Mapping[str, Any], settings: Mapping[str, str]) -> float:
    """Return the rate at the end of a ramp, for which there must be enough users, 1/s; 0 for other workloads."""
    if "rate_end" not in fields:
        return 0.0
    try:
        return max(map(float, settings["rate_end"].split(",")))
    except (KeyError, ValueError):  # not set, or no number, which is refused with the other settings
        return float(fields["rate_end"].default)


def _added(text: bool) -> dict[str, Any]:
    """Return the settings that the command adds: there is a network already, and chat completions take text."""
    settings = {"network_ms": 0.0, "max_reply_tokens": MOST_REPLY_TOKENS}
    return settings | {"modality": "text", "reply": "text"} if text else settings


def _is_recorded(workload: str) -> bool:
    """Return whether its users may say what was recorded."""
    from workloads.generators.speech import RecordedParams

    return issubclass(WORKLOADS[workload].Params, RecordedParams)
