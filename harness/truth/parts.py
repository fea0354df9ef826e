"""Requests as the server measured them beside the same as the client did, in the parts of a run."""

from collections.abc import Mapping, Sequence

from harness.truth.run import Request
from harness.truth.seen import Part, Seen, by_arrival, request

Joined = tuple[tuple[Request, ...], tuple[tuple[str, int, int], ...], tuple[Request | None, ...] | None]
"""`requests`, `parts` and `client` of a TruthRun."""


def joined(served: Sequence[Seen], client: Sequence[Part], unknown: Sequence[Part]) -> Joined:
    """`served` in the order of arrival; `unknown`: its parts where the client does not tell them.

    Without `served` the client's requests stand for it, without a view beside them.
    """
    ordered = [Part(part.label, tuple(by_arrival(part.seen))) for part in client if part.seen]
    if not served:
        seen = [one for part in ordered for one in part.seen]
        return _requests(seen), _spans([(part.label, len(part.seen)) for part in ordered]), None
    if not ordered:
        return _requests(served), _spans([(part.label, len(part.seen)) for part in unknown]), None
    asked = {one.id: one for part in ordered for one in part.seen if one.id}
    pairs = [_asked(one.id, asked) for one in served]
    if not any(pairs):  # other names: no request can be told from another
        return _requests(served), _spans([(part.label, len(part.seen)) for part in unknown]), None
    origin = min(one.start_s for one in asked.values())
    beside = tuple(request(one, origin) if one else None for one in pairs)
    return _requests(served), _spans(_counts(ordered, pairs)), beside


def _asked(name: str, asked: Mapping[str, Seen]) -> Seen | None:
    """The client knows `cmpl-HASH`; the server adds the number of the prompt, and newer ones a random piece."""
    while name:
        if name in asked:
            return asked[name]
        name = name.rpartition("-")[0]
    return None


def _counts(parts: Sequence[Part], pairs: Sequence[Seen | None]) -> list[tuple[str, int]]:
    """Requests that the client does not know belong to the part of the one before."""
    part_of = {id(one): at for at, part in enumerate(parts) for one in part.seen}
    counts, at = [0] * len(parts), 0
    for one in pairs:
        at = part_of[id(one)] if one else at
        counts[at] += 1
    return [(part.label, count) for part, count in zip(parts, counts, strict=True)]


def _requests(seen: Sequence[Seen]) -> tuple[Request, ...]:
    return tuple(request(one, seen[0].start_s) for one in seen)


def _spans(counts: Sequence[tuple[str, int]]) -> tuple[tuple[str, int, int], ...]:
    spans, first = [], 0
    for label, count in counts:
        spans.append((label, first, first + count))
        first += count
    return tuple(span for span in spans if span[2] > span[1])
