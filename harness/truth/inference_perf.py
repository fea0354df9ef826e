"""What inference-perf, a client, measured of each request: `per_request_lifecycle_metrics.json`.

It counts tokens by encoding the text again (inference_perf/apis/completion.py), a few per cent more or fewer than were
generated. Where the server ignored the end of sequence (`ignore_eos`), a request's limit is what was generated.
Older versions have the counts in `info`, newer ones in `info.request_metrics` and `info.response_metrics`.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.truth.document import get, needed, number, read_json
from harness.truth.seen import WHOLE, Part, Seen, by_arrival, rate_label
from workloads.errors import UserError
from workloads.files.json_file import parse

PROMPT = ("info.input_tokens", "info.request_metrics.text.input_tokens", "info.request_metrics.input_tokens")
OUTPUT = ("info.output_tokens", "info.response_metrics.output_tokens")
TIMES = (
    "info.output_token_times",
    "info.response_metrics.output_token_times",
    "info.response_metrics.chunk_times",
)
FAILED = "failed"
HEAD = 64
"""Characters; prompts that begin with the same have one system prompt. Those of synthetic ones are random."""


def read_parts(path: str | Path, profile: Mapping[str, Any]) -> list[Part]:
    """Requests that succeeded, a part for each stage of `profile` (what inference-perf was told; may be empty)."""
    entries = read_json(path)
    if not isinstance(entries, list) or not entries:
        raise UserError(
            f"{path} has no requests; set report.request_lifecycle.per_request in inference-perf."
        )
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
    """(requests a second, seconds) of each stage; none where `profile` has none."""
    listed = get(profile, "load.stages")
    if not isinstance(listed, list):
        return ()
    return tuple((needed(one, where, "rate"), needed(one, where, "duration")) for one in listed)


def _stages(ordered: Sequence[Seen], profile: Mapping[str, Any], where: str) -> list[tuple[str, int, int]]:
    """A stage sends just rate × seconds requests; where that is not what there is, one part."""
    loads = stages(profile, where)
    ends = [0]
    for rate, duration in loads:
        ends.append(ends[-1] + int(rate * duration))
    if not loads or ends[-1] != len(ordered):
        return [(WHOLE, 0, len(ordered))]
    return [(rate_label(rate), ends[at], ends[at + 1]) for at, (rate, _) in enumerate(loads)]


def _payload(entry: Any) -> dict[str, Any]:
    """What was sent to the server, where it was kept."""
    sent = get(entry, "request")
    try:
        sent = parse(sent) if isinstance(sent, str) else sent
    except ValueError:
        sent = None
    return sent if isinstance(sent, dict) else {}


def _shared(prompts: Sequence[Any], system: int) -> list[tuple[str | None, float]]:
    """Of each prompt the name of what it shares, and how many tokens at most: all where it came more than once."""
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


def _request(
    entry: Any, sent: dict[str, Any], prefix: str | None, shared: float, exact: bool, where: str
) -> Seen:
    start, end = needed(entry, where, "start_time"), needed(entry, where, "end_time")
    if get(entry, "error"):
        return Seen(FAILED, start, 0, 0)
    prompt = int(needed(entry, where, *PROMPT))
    times = get(entry, *TIMES) or []
    generated = number(sent, where, "max_tokens", "max_completion_tokens") if exact else None
    return Seen(
        id="",
        start_s=start,
        prompt_tokens=prompt,
        output_tokens=int(generated or needed(entry, where, *OUTPUT)),
        ttft_s=float(times[0]) - start if times else None,
        e2e_s=end - start,
        prefix=prefix,
        prefix_tokens=int(min(shared, prompt)),
    )
