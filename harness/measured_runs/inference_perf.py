"""Measurements by inference-perf, a client: of each request, and of an experiment whose requests are not there.

Requests: `per_request_lifecycle_metrics.json`; a whole experiment: `summary_lifecycle_metrics.json`.

It counts tokens by encoding the text again (inference_perf/apis/completion.py), a few per cent more or fewer than were
generated. Where the server ignored the end of sequence (`ignore_eos`), a request generated as many tokens as its limit.
Older versions have the counts in `info`, newer ones in `info.request_metrics` and `info.response_metrics`.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.measured_runs.document import get, needed, number, read_json
from harness.measured_runs.measured_run import WHOLE, Part, Request, Server, SummaryRun, by_arrival, rate_label
from workloads.errors import UserError
from workloads.files.json_file import parse

PROMPT = ("info.input_tokens", "info.request_metrics.text.input_tokens", "info.request_metrics.input_tokens")
OUTPUT = ("info.output_tokens", "info.response_metrics.output_tokens")
TIMES = ("info.output_token_times", "info.response_metrics.output_token_times", "info.response_metrics.chunk_times")
GROUPS, PROMPTS_OF_GROUP = 10, 10
"""Defaults of its synthetic prompts."""
FAILED = "failed"
HEAD = 64
"""Characters; prompts that begin with the same have one system prompt. Those of synthetic ones are random."""


def read_parts(path: str | Path, profile: Mapping[str, Any]) -> list[Part]:
    """Return the successful requests, a part for each stage of `profile` (inference-perf's settings; may be empty)."""
    entries = read_json(path)
    if not isinstance(entries, list) or not entries:
        raise UserError(f"{path} has no requests; set report.request_lifecycle.per_request in inference-perf.")
    exact = get(profile, "server.ignore_eos") is True
    system = int(number(profile, str(path), "data.shared_prefix.system_prompt_len") or 0)
    sent = [_payload(entry) for entry in entries]
    shared = _shared([text.get("prompt") for text in sent], system)
    ordered = by_arrival(
        _request(entry, payload, *prefix, exact, f"{path}, request {at}")
        for at, (entry, payload, prefix) in enumerate(zip(entries, sent, shared, strict=True), 1)
    )
    return [
        Part(label, tuple(one for one in ordered[first:end] if one.id != FAILED))
        for label, first, end in _stages(ordered, profile, str(path))
    ]


def stages(profile: Mapping[str, Any], where: str) -> tuple[tuple[float, float], ...]:
    """Return (requests a second, seconds) of each stage; none where `profile` has none."""
    listed = get(profile, "load.stages")
    if not isinstance(listed, list):
        return ()
    return tuple((needed(one, where, "rate"), needed(one, where, "duration")) for one in listed)


def _stages(ordered: Sequence[Request], profile: Mapping[str, Any], where: str) -> list[tuple[str, int, int]]:
    """Return the requests by stage. A stage sends exactly rate × seconds requests; if the counts differ, there is one
    part."""
    loads = stages(profile, where)
    ends = [0]
    for rate, duration in loads:
        ends.append(ends[-1] + int(rate * duration))
    if not loads or ends[-1] != len(ordered):
        return [(WHOLE, 0, len(ordered))]
    return [(rate_label(rate), ends[at], ends[at + 1]) for at, (rate, _) in enumerate(loads)]


def _payload(entry: Any) -> dict[str, Any]:
    """Return the request body, where it was kept; else {}."""
    sent = get(entry, "request")
    try:
        sent = parse(sent) if isinstance(sent, str) else sent
    except ValueError:
        sent = None
    return sent if isinstance(sent, dict) else {}


def _shared(prompts: Sequence[Any], system: int) -> list[tuple[str | None, float]]:
    """Return for each prompt the name of its shared part, and the most tokens of that part: all where the prompt came
    more than once."""
    often = Counter(prompts)
    texts = [text if isinstance(text, str) else "" for text in prompts]
    names: dict[str, str] = {}
    shared: list[tuple[str | None, float]] = []
    for text in texts:
        if text and often[text] > 1:
            shared.append((names.setdefault(text, f"prompt {len(names)}"), math.inf))
        elif text and system:
            shared.append((names.setdefault(text[:HEAD], f"system {len(names)}"), system))
        else:
            shared.append((None, 0))
    return shared


def _request(entry: Any, sent: dict[str, Any], prefix: str | None, shared: float, exact: bool, where: str) -> Request:
    start, end = needed(entry, where, "start_time"), needed(entry, where, "end_time")
    if get(entry, "error"):
        return Request(start, 0, 0, id=FAILED)
    prompt = int(needed(entry, where, *PROMPT))
    times = get(entry, *TIMES) or []
    generated = number(sent, where, "max_tokens", "max_completion_tokens") if exact else None
    return Request(
        id="",
        arrival_s=start,
        prompt_tokens=prompt,
        output_tokens=int(generated or needed(entry, where, *OUTPUT)),
        ttft_s=float(times[0]) - start if times else None,
        e2e_s=end - start,
        prefix=prefix,
        prefix_tokens=int(min(shared, prompt)),
    )


_LATENCY = {"e2e": "request_latency", "ttft": "time_to_first_token"}
_TAILS = ("mean", "p90", "p99")


def read_stages(
    path: str | Path, profile: Mapping[str, Any], name: str, workload: str, server: Server
) -> list[SummaryRun]:
    """Return the stages of an experiment, where each has a file next to the summary, else the whole of it; or the one
    stage of the file `path`.

    A stage begins when all requests of the previous one have ended, so each is an experiment of its own, but for the
    prompts that the stages before it left in the cache. `profile`:
    inference-perf's settings. UserError without its stages, or about what a file lacks.
    """
    path = Path(path)
    loads = stages(profile, str(path))
    if not loads:
        raise UserError(f"{path} is a summary of unknown load; put profile.yaml with load.stages into its folder.")
    files = [path.with_name(f"stage_{at}_lifecycle_metrics.json") for at in range(len(loads))]
    if path not in files and not all(file.is_file() for file in files):
        return [_experiment(path, profile, name, workload, server, loads)]
    return [
        _experiment(file, profile, f"{name}-stage-{at}", rate_label(load[0]), server, loads[at : at + 1], loads[:at])
        for at, (file, load) in enumerate(zip(files, loads, strict=True))
        if path not in files or path == file
    ]


def _experiment(
    path: Path,
    profile: Mapping[str, Any],
    name: str,
    workload: str,
    server: Server,
    loads: tuple[tuple[float, float], ...],
    earlier: tuple[tuple[float, float], ...] = (),
) -> SummaryRun:
    """Return an experiment. The file's mean between tokens is not read: it is over pieces of the stream, and several
    pieces may come at once. Its time per token divides by its own count of tokens."""
    where, document = str(path), read_json(path)
    done = get(document, "successes")
    shared = get(profile, "data.shared_prefix")
    exact = get(profile, "server.ignore_eos") is True
    asked = number(shared, where, "output_len") if exact else None
    output = asked or needed(done, where, "output_len.mean")
    measured = {
        f"{metric}_{tail}": needed(done, where, f"latency.{source}.{tail}")
        for metric, source in _LATENCY.items()
        for tail in _TAILS
    }
    return SummaryRun(
        name=name,
        server=server,
        workload=workload,
        measured=measured,
        input_tokens=needed(done, where, "prompt_len.mean"),
        output_tokens=output,
        rates=loads,
        earlier=earlier,
        assumed=_assumed(shared, asked is not None, number(document, where, "failures.count")),
        prompts=_prompts(shared, where),
        achieved=number(document, where, "load_summary.achieved_rate"),
        tool="inference-perf",
    )


def _prompts(shared: Any, where: str) -> int | None:
    if not isinstance(shared, dict):
        return None
    groups = number(shared, where, "num_groups", "num_unique_system_prompts") or GROUPS
    each = number(shared, where, "num_prompts_per_group", "num_users_per_system_prompt") or PROMPTS_OF_GROUP
    return int(groups) * int(each)


def _assumed(shared: Any, exact: bool, failed: float | None) -> tuple[str, ...]:
    assumptions = ["When requests came is not known beyond their Poisson process."]
    if isinstance(shared, dict) and "num_groups" not in shared:
        assumptions.append(
            "The number of different prompts is the requested one; older versions ignored that and sent 100."
        )
    if not exact:
        assumptions.append("Output tokens were counted by the client in the text.")
    if failed:
        assumptions.append(f"{failed:g} requests failed and are in no latency.")
    return tuple(assumptions)
