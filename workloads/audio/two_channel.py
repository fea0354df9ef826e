"""Recorded calls of two people on two channels, with RTTM or TextGrid: workload `two_channel`.

One of the two is the user and is heard as recorded; the other says when, and how long, an agent would have spoken.
A turn lasts until the other speaks after it. Speech of less than a second inside the other's speech is a backchannel
(Full-Duplex-Bench uses the same second). Any other speech that begins there is an interruption.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from pydantic import Field

from workloads.audio.annotated_calls import AnnotatedParams, HeardCall, HeardTurn, Span, annotated_trace
from workloads.audio.library import audio_files, open_recording
from workloads.errors import UserError, existing_file
from workloads.trace import Trace

SILENT_LABELS = frozenset({"", "sil", "silence", "sp", "#", "<sil>", "<p:>", "_"})
"""Texts of intervals without speech; any other text means speech."""
# Praat writes labels between its values, and reads only what stands free: texts, flags and numbers outside brackets.
_VALUE = re.compile(
    r'"((?:[^"]|"")*)"|(<exists>|<absent>)|(?<![\w\[.<-])(-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)(?![\w\].])'
)


@dataclass(slots=True)
class Speaker:
    """One speaker. `channel`: in the file, 0, 1, ...; `spans`: begin and end of each utterance in s, in order."""

    name: str
    channel: int
    spans: list[tuple[float, float]]


def read_rttm(path: Path) -> dict[str, list[Speaker]]:
    """The speakers of each recording that the file is about, by its name without suffix.

    Lines `SPEAKER file channel onset duration <NA> <NA> name ...` (NIST RT-09); others are of other things. Where all
    of a recording are on channel 1, as many tools write it, each has the one of their place in the order of names.
    UserError names the first line that is none.
    """
    found: dict[str, dict[str, Speaker]] = {}
    for number, line in enumerate(
        existing_file(path).read_text(encoding="utf-8", errors="replace").splitlines(), 1
    ):
        fields = line.split()
        if not fields or fields[0] != "SPEAKER":
            continue
        try:
            name, begin_s, length_s, channel = fields[7], float(fields[3]), float(fields[4]), int(fields[2])
            if begin_s < 0 or length_s <= 0:
                raise ValueError
        except (IndexError, ValueError):
            raise UserError(
                f"{path} line {number} is {line!r}; give SPEAKER file channel onset duration <NA> <NA> name."
            ) from None
        speaker = found.setdefault(fields[1], {}).setdefault(name, Speaker(name, channel - 1, []))
        speaker.spans.append((begin_s, begin_s + length_s))
    return {file: _with_own_channels(speakers.values()) for file, speakers in found.items()}


def read_textgrid(path: Path) -> list[Speaker]:
    """Read the interval tiers of a TextGrid, long or short, in UTF-8 or UTF-16: each is a speaker, on the channel of
    its place. UserError if the file is not a TextGrid or has no tier of intervals."""
    data = existing_file(path).read_bytes()
    text = data.decode("utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig", errors="replace")
    values = [a.replace('""', '"') if b == c == "" else b or float(c) for a, b, c in _VALUE.findall(text)]
    speakers: list[Speaker] = []
    try:
        if values[:2] != ["ooTextFile", "TextGrid"]:
            raise ValueError
        at, tiers = 6, int(values[5])
        for _ in range(tiers):
            kind, name, count = values[at], values[at + 1], int(values[at + 4])
            width = 3 if kind == "IntervalTier" else 2
            rows = [values[at + 5 + width * i : at + 5 + width * (i + 1)] for i in range(count)]
            at += 5 + width * count
            if width == 3:
                spans = [
                    (float(b), float(e))
                    for b, e, label in rows
                    if str(label).strip().lower() not in SILENT_LABELS
                ]
                speakers.append(Speaker(str(name), len(speakers), spans))
    except (IndexError, ValueError, TypeError):
        raise UserError(f"{path} is no TextGrid; save it from Praat as one.") from None
    if not speakers:
        raise UserError(f"{path} has no tier of intervals; give each speaker one.")
    return speakers


def _with_own_channels(speakers: Iterable[Speaker]) -> list[Speaker]:
    ordered = sorted(speakers, key=lambda one: (one.channel, one.name))
    if len({one.channel for one in ordered}) < len(ordered):
        for place, one in enumerate(ordered):
            one.channel = place
    for one in ordered:
        one.spans.sort()
    return ordered


JOINED_S = 0.2  # choice: a shorter silence is inside a word or between two
SHORT_S = 1.0  # Full-Duplex-Bench's turn_duration_threshold
HESITATION_S = 0.3  # choice, as in workload duplex


class TwoChannelParams(AnnotatedParams):
    user: str | None = Field(
        None, description="speaker (name, tier) who is the user; none: who has the first channel"
    )


def two_channel(params: TwoChannelParams, seed: int) -> Trace:
    """Return a call for each annotated recording; UserError if there is none or an annotation cannot be used."""
    sounds = {Path(name).stem: name for name in audio_files(params.path)}
    annotated = {
        name: speakers
        for path in sorted(params.path.rglob("*.rttm"))
        for name, speakers in read_rttm(path).items()
    }
    grids = sorted({path for suffix in ("TextGrid", "textgrid") for path in params.path.rglob(f"*.{suffix}")})
    annotated |= {path.stem: read_textgrid(path) for path in grids}
    known = sorted(annotated.keys() & sounds.keys())
    if not known:
        raise UserError(
            f"{params.path} has no .rttm or .TextGrid that names one of its {len(sounds)} recordings; add them."
        )
    calls, notes = [], [f"{len(known)} of {len(sounds)} recordings have an annotation"]
    dropped = 0
    for name in known:
        user, other = _sides(annotated[name], params.user, name)
        turns, more = _turns(_joined(user.spans), _joined(other.spans))
        dropped += more
        if turns:
            calls.append(HeardCall(open_recording(params.path, sounds[name], user.channel), turns))
    if not calls:
        raise UserError(
            f"in none of the {len(known)} recordings of {params.path} the user speaks; set another user."
        )
    if dropped:
        notes.append(f"{dropped} events more fell on turns that had one")
    return annotated_trace(calls, params, seed, "two_channel", notes)


def _sides(speakers: list[Speaker], user: str | None, recording: str) -> tuple[Speaker, Speaker]:
    names = [one.name for one in speakers]
    if len(speakers) != 2:
        raise UserError(
            f"{recording} has {len(speakers)} speakers ({', '.join(names)}); give calls of two people."
        )
    if user is not None and user not in names:
        raise UserError(f"user is {user!r}, but {recording} has {' and '.join(names)}; name one of them.")
    own = min(speakers, key=lambda one: one.channel) if user is None else speakers[names.index(user)]
    return own, speakers[1 - speakers.index(own)]


def _turns(user: list[Span], other: list[Span]) -> tuple[list[HeardTurn], int]:
    """The user's turns, and how many backchannels found no place in them."""
    inside = [
        one
        for one in user
        if one[1] - one[0] < SHORT_S and any(a <= one[0] and one[1] <= b for a, b in other)
    ]
    talk: list[list[Span]] = []
    for one in user:
        if one in inside:
            continue
        if talk and not any(a < one[0] and b > talk[-1][-1][1] for a, b in other):
            talk[-1].append(one)
        else:
            talk.append([one])
    turns: list[HeardTurn] = []
    placed, answered_s = 0, 0.0
    for parts, coming in zip(talk, [*talk[1:], None], strict=True):
        begin_s, end_s = parts[0][0], parts[-1][1]
        next_s = coming[0][0] if coming else float("inf")
        replies = [one for one in other if one[1] > end_s and one[0] < next_s]
        turn = {
            "span": (begin_s, end_s),
            "pause": _hesitation(parts),
            "think_s": max(0.0, begin_s - answered_s),
        }
        if replies:
            reply_s, answered_s = replies[0][0], replies[-1][1]
            turn["reply_s"] = answered_s - reply_s
            murmurs = [one for one in inside if reply_s <= one[0] < min(answered_s, next_s)]
            if next_s < answered_s:
                turn |= {"event": "interruption", "event_after_s": next_s - reply_s}
            elif murmurs:
                placed += 1
                turn |= {
                    "event": "backchannel",
                    "event_after_s": murmurs[0][0] - reply_s,
                    "event_span": murmurs[0],
                }
        else:
            answered_s = end_s
        turns.append(HeardTurn(**turn))
    return turns, len(inside) - placed


def _hesitation(parts: list[Span]) -> Span | None:
    gaps = [(a[1], b[0]) for a, b in pairwise(parts) if b[0] - a[1] >= HESITATION_S]
    return max(gaps, key=lambda gap: gap[1] - gap[0], default=None)


def _joined(spans: list[Span]) -> list[Span]:
    joined: list[Span] = []
    for begin_s, end_s in sorted(spans):
        if joined and begin_s - joined[-1][1] < JOINED_S:
            joined[-1] = (joined[-1][0], max(end_s, joined[-1][1]))
        else:
            joined.append((begin_s, end_s))
    return joined
