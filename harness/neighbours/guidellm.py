"""guidellm's results (0.3 to 0.8) as loads; names as `harness.truth.guidellm`, which reads what was answered."""

from pathlib import Path
from typing import Any

from harness.neighbours.requests import Answered, Load
from harness.truth.document import get, number, read_json
from harness.truth.guidellm import END, PROMPT, START, read_parts


def read_loads(path: Path) -> list[Load]:
    """One for each benchmark of the file. UserError says what is missing."""
    document, parts = read_json(path), read_parts(path)
    url = get(document, "args.target", "args.backend_kwargs.target", "args.backend.target") or ""
    loads = []
    for part, benchmark in zip(parts, get(document, "benchmarks"), strict=True):
        requests = [
            Answered(
                session=seen.id or f"request {index}",
                due_s=seen.start_s,
                end_s=None if seen.e2e_s is None else seen.start_s + seen.e2e_s,
                prompt_tokens=seen.prompt_tokens,
                output_tokens=seen.output_tokens,
                ttft_s=seen.ttft_s,
            )
            for index, seen in enumerate(part.seen)
        ]
        requests += [
            _failed(one, f"{path}, failed request", index) for index, one in enumerate(_errored(benchmark))
        ]
        loads.append(Load(part.label, tuple(requests), str(url)))
    return loads


def _errored(benchmark: Any) -> list[Any]:
    found = get(benchmark, "requests.errored")
    return [one for one in found or [] if number(one, "", *START) is not None]


def _failed(one: Any, where: str, index: int) -> Answered:
    start_s = number(one, where, *START)
    assert start_s is not None
    prompt = number(one, where, *PROMPT)
    end_s = number(one, where, *END)
    return Answered(f"failed {index}", start_s, end_s, int(prompt or 1), None, None, "errored")
