"""Errors of the user: one clear sentence each, with the fault, its value and the fix."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from math import isfinite, log10
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_args, get_origin

from workloads.bounds import MOST_INTEGER

if TYPE_CHECKING:
    from pydantic import BaseModel  # no command's help needs it

Model = TypeVar("Model", bound="BaseModel")

_MESSAGES = {"too_short": "needs {min_length} or more", "string_pattern_mismatch": "should match {pattern}"}
"""Messages of pydantic that do not follow the field's name."""


_ANNOTATED = (
    "annotated calls are no longer read. Workload duplex draws hesitations, interruptions and other sounds over "
    "recorded speech: --set workload=duplex --set path=DIR."
)
REMOVED = {
    "card clocked": "this card is an example now: rehearse run examples/clocked.yaml.",
    "card clocked-sessions": "this card is an example now: rehearse run examples/clocked.yaml.",
    "card conserve-voice": "this card is an example now: rehearse run examples/conserve_voice.yaml.",
    "card nova-episodes": "this card is an example now: rehearse run examples/nova_episodes.yaml.",
    "card omniinfer-prefix": "this card is an example now: rehearse run examples/omniinfer_prefix.yaml.",
    "card omniinfer-ratio": "this card is an example now: rehearse run examples/omniinfer_ratio.yaml.",
    "card omniinfer-routing": "this card is an example now: rehearse run examples/omniinfer_routing.yaml.",
    "command artifact": "rehearse run GROUP measures a paper's cards, and rehearse claims GROUP --csv writes "
    "its claims; compare two such files with diff.",
    "command tune": "the sweep of LiveServe's weights is a card now: rehearse run liveserve-tuning.",
    "command gap": "rehearse live URL --dialect rtvi measures the gap that a voice agent's callers hear; "
    "the agent's own log says what it is made of.",
    "command proxy": "put a load balancer, such as nginx, in front of the servers and give its address to rehearse "
    "live. A simulated stage with several replicas takes --set routing=RULE.",
    "engine hygen": "this engine is gone; conserve, sarathi_p and distserve_p serve online and offline requests "
    "together.",
    "executor slurm": "Slurm runs points through Ray: start a Ray cluster in the job and give --executor auto, as "
    "docs/executors.md says.",
    "option --batch": "batch requests next to a live run's users are removed; --workload co_serving has chat users and "
    "batch jobs.",
    "option --batch-url": "batch requests next to a live run's users are removed; leave --batch-url out.",
    "option --export": "reports in other tools' formats are no longer written; rehearse report DIR --csv or "
    "--json writes the numbers.",
    "option --partition": "Slurm runs points through Ray: give the partition to sbatch and leave --partition out, as "
    "docs/executors.md says.",
    "option --price": "leave --price out; multiply the GPU-seconds of rehearse find by your price, or divide it by the "
    "concurrent users of rehearse live.",
    "option --replicas": "a server is one process; start rehearse serve once for each port, put a load balancer, such "
    "as nginx, in front of them and leave --replicas out.",
    "option --router": "a server is one process; leave --router out. --set routing=RULE chooses among the replicas of "
    "a stage.",
    "option --sbatch": "Slurm runs points through Ray: give the option to sbatch itself and leave --sbatch out, as "
    "docs/executors.md says.",
    "option --watts": "leave --watts out and multiply the GPU-seconds of rehearse find by your watts.",
    "parameter batch": "batch requests next to a live run's users are removed; --workload co_serving has chat users "
    "and batch jobs.",
    "parameter power": "power meters are no longer read; leave power out.",
    "workload full_duplex_bench": _ANNOTATED,
    "workload ragpulse": "workload sessions replays a CSV (--set path=FILE) with session_id, t, query and output; "
    "write RAGPulse's rows so.",
    "workload two_channel": _ANNOTATED,
    "results of another tool": "rehearse compare RUN FILE shows guidellm's results next to a run of rehearse live, and "
    "rehearse fidelity --measured-runs DIR replays them.",
}
"""Names of the version before, as kind and name, and the sentence about the replacement of each. Kept for one
version."""


_LONG, _SHOWN = re.compile(r"\S{400,}"), 120
"""A word of a sentence that is longer than any path of practice, as it repeats a value of the user's, and how much of
it remains. [chosen]"""

_ROOM = 1500
"""Characters of the names that a sentence lists. [chosen]"""

CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Characters that a terminal obeys or that turn the direction of text around them, and halves of characters."""


_HALF = re.compile("[\ud800-\udfff]")


class UserError(ValueError):
    """An error that the user can fix; the command line prints the sentence and exits with status 2. A value in the
    sentence that is too long to read is cut, so that the fix after it can be seen."""

    def __init__(self, message: str) -> None:
        super().__init__(_LONG.sub(_cut, message))


def _cut(word: re.Match[str]) -> str:
    """Return the begin of a word, with the marks at its end."""
    marks = word[0][len(word[0].rstrip("'\":;,.)")) :]
    return f"{word[0][:_SHOWN]}...{marks[:3]}"


def printable(text: str, limit: int = 400) -> str:
    """A stranger's text as part of one line of ours: what a terminal would obey is escaped, and the rest is cut."""
    cut = text if len(text) <= limit else f"{text[: limit - 3]}..."
    return CONTROL.sub(lambda c: " " if c[0].isspace() else c[0].encode("unicode_escape").decode(), cut)


def nearest(name: str, choices: Iterable[str]) -> str:
    """A hint to append to "unknown NAME.": the closest choice, or the only one with this word in it, or all of them as
    far as a sentence has room."""
    names = sorted(choices)
    close = difflib.get_close_matches(name, names, n=1) or [each for each in names if name in each.split("_")]
    if len(close) == 1:
        return f" Did you mean {close[0]!r}?"
    shown = max((n for n in range(len(names) + 1) if len(", ".join(names[:n])) <= _ROOM), default=0)
    more = f" and {len(names) - shown} more" if shown < len(names) else ""
    return f" Choose from: {', '.join(names[:shown])}{more}." if names else ""


def unknown(what: str, name: str, choices: Iterable[str], where: str = "") -> UserError:
    """Return the error about an unknown name: its replacement if it is in `REMOVED`, else the nearest choice. `where`
    follows the name."""
    message = REMOVED.get(f"{what} {name}")
    return UserError(message or f"unknown {what} {name!r}{where}.{nearest(name, choices)}")


def unknown_parameter(where: str, name: str, choices: Iterable[str], hint: str = "") -> UserError:
    """The error about a parameter that nothing has. `where` opens the sentence, `hint` closes it."""
    message = REMOVED.get(f"parameter {name}") or f"unknown parameter {name!r}.{nearest(name, choices)}{hint}"
    return UserError(f"{where}: {message}")


def validate(model: type[Model], values: Mapping[str, object], where: str) -> Model:
    """Build `model` from `values`; UserError about the first wrong field. `where` opens the sentence."""
    from pydantic import ValidationError

    values = dict(values)
    _check_values(values, where)
    for name, value in values.items():
        if isinstance(value, bool) and _is_number(model, name):  # a field would take it as 0 or 1
            raise UserError(f"{where}: parameter {name!r} should be a number, got {value}.")
    try:
        return model.model_validate(values)
    except UnicodeEncodeError as error:
        text = printable(repr(error.object), 160)
        raise UserError(f"{where}: {text} holds half of a character; write it without.") from None
    except ValidationError as error:
        # A name that is unknown explains one that is missing.
        first = min(error.errors(include_url=False), key=lambda fault: fault["type"] != "extra_forbidden")
    if first["type"] == "extra_forbidden" and len(first["loc"]) == 1:
        name = str(first["loc"][0])
        raise unknown_parameter(where, name, model.model_fields, _as_list(model, name, first["input"]))
    said_already = first.get("ctx", {}).get("error")
    if isinstance(said_already, UserError):
        raise said_already
    field = ".".join(str(part) for part in first["loc"])
    message = re.sub("^(Value error, |Input |String )", "", first["msg"]).split(" for <class")[0]
    if first["type"] == "missing":
        declared = model.model_fields.get(field)
        meaning = f" ({declared.description})" if declared and declared.description else ""
        raise UserError(f"{where}: parameter {field!r} is required{meaning}; give it a value.")
    if not field:
        raise UserError(f"{where}: {message}.")
    if first["type"] in _MESSAGES:
        message = _MESSAGES[first["type"]].format(**first.get("ctx", {}))
    raise UserError(f"{where}: parameter {field!r} {message}, got {printable(repr(first['input']), 160)}.")


def _check_values(values: Mapping[Any, object], where: str) -> None:
    """UserError for a value, at any depth, that no field takes: a number that is not finite or has more than 64 bits,
    and text with half of a character."""
    pending: list[tuple[str, object]] = [("", values)]
    seen: set[int] = set()
    for place, value in pending:  # which grows meanwhile
        wanted = ""
        if isinstance(value, Mapping | list | tuple):
            if id(value) not in seen:
                seen.add(id(value))
                named = value.items() if isinstance(value, Mapping) else enumerate(value)
                pending += [(f"{place}.{name}" if place else str(name), item) for name, item in named]
        elif isinstance(value, float) and not isfinite(value):
            wanted = f"be a finite number, got {value}"
        elif isinstance(value, int) and abs(value) > MOST_INTEGER:
            digits = round(value.bit_length() * log10(2))
            wanted = f"be a number of at most {MOST_INTEGER}, got one of {digits:,} digits"
        elif isinstance(value, str) and _HALF.search(value):
            wanted = f"be text, got {printable(value, 40)!r}, which holds half of a character"
        if wanted:
            raise UserError(f"{where}: parameter {place!r} should {wanted}.")


def _is_number(model: type[BaseModel], name: str) -> bool:
    annotation = model.model_fields[name].annotation if name in model.model_fields else None
    kinds = {annotation, *get_args(annotation)}
    return bool not in kinds and not kinds.isdisjoint((int, float))


def _as_list(model: type[BaseModel], name: str, value: Any) -> str:
    """Return the notation of one value if the nearest name takes a list."""
    for close in difflib.get_close_matches(name, model.model_fields, n=1):
        if get_origin(model.model_fields[close].annotation) is list and not isinstance(value, list):
            return f" It takes a list: {close}: [{value}]."
    return ""


def existing_file(path: str | Path) -> Path:
    """`path` as a Path once it is known to be a file with something in it; UserError otherwise."""
    path = Path(path)
    try:
        if path.is_dir():
            raise UserError(f"{path} is a directory; give the path of a file.")
        if not path.exists():
            raise UserError(f"{path} does not exist; give the path of an existing file.")
        if path.stat().st_size == 0:
            raise UserError(f"{path} is empty; give a file with data in it.")
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}; give a readable file.") from None
    return path
