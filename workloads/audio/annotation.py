"""Annotations of a recording's speakers as corpora have them: RTTM lines and Praat's TextGrids."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from workloads.errors import UserError, existing_file

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
    return {file: _told_apart(speakers.values()) for file, speakers in found.items()}


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
                    for b, e, said in rows
                    if str(said).strip().lower() not in SILENT_LABELS
                ]
                speakers.append(Speaker(str(name), len(speakers), spans))
    except (IndexError, ValueError, TypeError):
        raise UserError(f"{path} is no TextGrid; save it from Praat as one.") from None
    if not speakers:
        raise UserError(f"{path} has no tier of intervals; give each speaker one.")
    return speakers


def _told_apart(speakers: Iterable[Speaker]) -> list[Speaker]:
    ordered = sorted(speakers, key=lambda one: (one.channel, one.name))
    if len({one.channel for one in ordered}) < len(ordered):
        for place, one in enumerate(ordered):
            one.channel = place
    for one in ordered:
        one.spans.sort()
    return ordered
