"""`rehearse live URL` as an ordinary experiment, whose engine is the server behind the URL."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from engines.registry import ENDPOINT
from harness.endpoints.target import TargetParams, check_secrets
from harness.experiments.experiment import Experiment
from harness.experiments.settings import override
from harness.kinds import live_kind, named
from workloads.errors import UserError, unknown, validate
from workloads.registry import WORKLOADS

RECORDED = ("speech", "duplex")
"""Workloads whose users may say what was recorded."""
SPOKEN, TYPED = "speech", "sharegpt"
"""Workloads where none is set: speech, real or synthetic, and chat completions with ShareGPT's lengths. [chosen]"""
MOST_REPLY_TOKENS = 128
"""Longest reply that is asked for, about 36 s of speech: who begins in the last second keeps the run going. [chosen]"""
OPTIONS = {
    "url": "URL",
    "c": "--sessions",
    "save_audio": "--save-audio",
    "stop_after_s": "--duration",
}
"""Parameters that have words of their own on the command line."""
_WORDS = {**OPTIONS, "sessions": "--sessions", "rate": "--rate", "dialect": "--dialect", "path": "--audio"}
_WORDS |= {"shards": "--shards", "scrape": "--scrape", "token_env": "--token-env"}
TURNS = "stop_after_turns"
"""Parameter with the turns that are judged, after which a run ends."""
_ENDS = ("stop_after_s", TURNS)
DRAIN_S = 600.0
"""After the duration, for what has begun to end, before a point is given up. [chosen]"""


def live_experiment(
    target: Mapping[str, Any],
    settings: Mapping[str, str],
    *,
    sessions: Sequence[int] | None,
    rates: Sequence[float] | None,
    duration_s: float | Sequence[float],
    turns: Sequence[int | None] = (),
    repeats: int,
    audio: Path | None = None,
    label: str = "",
) -> Experiment:
    """Return the experiment of a live run.

    `sessions`: concurrent calls, a closed loop for each number. `rates`: new calls per second, an open loop each.
    `duration_s`: of all of them, or of each. `turns`: that each judges, where its run ends with them. `settings`: of
    `--set`, over everything else. `label`: the server's build. UserError for settings that cannot be combined. The
    users of a load depend on it and on its duration alone.
    """
    for name in ("url", "text_url", "scrape"):
        check_secrets(str(target.get(name) or settings.get(name, "")))
    params = validate(TargetParams, target, "live")
    params.token()  # said now where token_env names nothing
    workload = settings.get("workload", TYPED if params.is_text else SPOKEN)
    if workload not in WORKLOADS:
        raise unknown("workload", workload, WORKLOADS)
    known = WORKLOADS[workload].Params.model_fields
    fixed: dict[str, Any] = {"network_ms": 0.0, "max_reply_tokens": MOST_REPLY_TOKENS}  # there is a network
    if params.is_text:
        fixed |= {name: "text" for name in ("modality", "reply") if name in known}
    if audio is not None:
        if workload not in RECORDED:
            raise UserError(
                f"--audio is for workloads {' and '.join(RECORDED)}, and workload is {workload}; leave one of them out."
            )
        fixed["path"] = str(audio)
    kind = live_kind(named(WORKLOADS[workload].serves))
    if params.save_audio and kind.name != "duplex":
        raise UserError(
            f"--save-audio keeps calls on open microphones, and workload is {workload}; give --workload duplex, or "
            "leave it out."
        )
    amounts = list(rates or sessions or [])
    lengths = [duration_s] * len(amounts) if isinstance(duration_s, (int, float)) else list(duration_s)
    loads = [
        kind.load(workload, known, 0, amount, length)
        if rates is not None
        else kind.load(workload, known, int(amount), None, length)
        for amount, length in zip(amounts, lengths, strict=True)
    ]
    if kind.name == "turns" and turns and None not in turns:
        for (_, own), judged in zip(loads, turns, strict=True):
            own[TURNS] = judged
    ((axis, load), *_) = loads
    more = {name: text for name, text in settings.items() if name != "workload"}
    varied = [name for name in load if name not in more and any(own[name] != load[name] for _, own in loads)]
    fixed |= {name: value for name, value in load.items() if name not in varied}
    along = {name: [own[name] for _, own in loads] for name in varied if name in known or name in _ENDS}
    grid: dict[str, list[Any]] = {axis: amounts}
    given = {name: value for name, value in target.items() if value is not None}
    data = {
        "name": "live",
        "title": f"{params.url}, called for {' to '.join(f'{s:g}' for s in sorted({min(lengths), max(lengths)}))} s",
        "engines": [ENDPOINT],
        "workload": workload,
        "device": "live",
        "set": {
            **given,
            **{name: value for name, value in fixed.items() if name in known or name in _ENDS},
        },
        "grid": grid,
        "along": along,
        "label": label,
        "seeds": repeats,
        "timeout_s": max(lengths) + DRAIN_S,
    }
    for name in more:
        if name in ("engine", "device"):
            raise UserError(
                f"--set {name}: rehearse live calls the url alone; see rehearse run for engines of ours."
            )
        if name in OPTIONS:
            raise UserError(f"--set {name}: give it as {OPTIONS[name]} instead.")
    return override(validate(Experiment, data, "live"), more)


def asked(experiment: Experiment) -> str:
    """Return a live experiment in the words of the command line: `--sessions 4,16 --duration 30 --set p=0.5`, without
    settings that the command adds itself, such as the spare sessions of a closed loop."""
    workload = WORKLOADS[experiment.workload]
    known, url = workload.Params.model_fields, str(experiment.set.get("url", ""))
    text = TargetParams.model_validate({"url": url}).is_text
    _, load = live_kind(named(workload.serves)).load(experiment.workload, known, 1, None, 1.0)
    own = {"network_ms": 0.0, "max_reply_tokens": MOST_REPLY_TOKENS}
    own |= {"modality": "text", "reply": "text"} if text else {}
    length = next((name for name in ("stop_after_s", "duration_s") if name in experiment.set), None)
    words = [_word(name, values) for name, values in experiment.grid.items()]
    varied = next((name for name in ("stop_after_s", "duration_s") if name in experiment.along), "")
    lengths = [float(str(value)) for value in experiment.along.get(varied, ())]
    if lengths:
        words.append(f"for {min(lengths):g} to {max(lengths):g} s")
    if length is not None:
        words.append(f"--duration {experiment.set[length]:g}")
    if len(experiment.seeds) > 1:
        words.append(f"--repeats {len(experiment.seeds)}")
    if experiment.workload != (TYPED if text else SPOKEN):
        words.append(f"--workload {experiment.workload}")
    words += [
        _word(name, [value])
        for name, value in experiment.set.items()
        if name not in ("url", length, TURNS, *load)
        and own.get(name) != value
        and (name, value) != ("dialect", TargetParams.model_fields["dialect"].default)
    ]
    return " ".join(words)


def _word(name: str, values: Sequence[Any]) -> str:
    text = ",".join(f"{value:g}" if isinstance(value, float) else str(value) for value in values)
    return f"{_WORDS[name]} {text}" if name in _WORDS else f"--set {name}={text}"
