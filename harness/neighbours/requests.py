"""One load of another tool's file, request by request, before it is a record."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Answered:
    """Times in s on one clock for the whole file; None was not measured. `failed`: why; empty where it was answered."""

    session: str
    due_s: float
    """When it was sent, as far as the tool says: latencies count from here."""
    end_s: float | None
    prompt_tokens: int
    output_tokens: int | None
    ttft_s: float | None
    failed: str = ""


@dataclass(frozen=True)
class Load:
    """`label`: what it is called; `url`: of the server, where the file says."""

    label: str
    requests: tuple[Answered, ...]
    url: str
