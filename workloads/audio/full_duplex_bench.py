"""The samples of Full-Duplex-Bench v1 and v1.5 as calls: workload `full_duplex_bench`.

Each sample is a folder with `input.wav`, what the user says, and an annotation with times in s of it:

    pause.json         v1, pause handling: [{"text": "[PAUSE]", "timestamp": [begin, end]}, ...]
    turn_taking.json   v1, smooth turn taking: [{"text": ..., "timestamp": [end of the turn, ...]}]
    interrupt.json     v1, user interruption: [{"context": ..., "interrupt": ..., "timestamp": [begin, end]}]
    metadata.json      v1.5, overlaps: {"timestamps": [begin, end], ...} of what the folder above is called after
    none               v1, backchannel: the user speaks, and the agent may murmur

There the user's sound runs on a clock of its own; here an event is counted from the reply's first sound, so that each
server is met at the same place of its reply: as late as in the recording, were the reply to begin a second after the
turn. Sources: the benchmark's dataset/README.md and its evaluation scripts, which read these fields.
"""

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

from workloads.audio.annotated_calls import AnnotatedParams, HeardCall, HeardTurn, Span, annotated_trace
from workloads.audio.library import Recording, open_recording
from workloads.audio.phrases import speech_of
from workloads.columns.duplex_events import Event
from workloads.errors import UserError
from workloads.trace import Trace

SOUND = "input.wav"
ANSWER_S = 1.0  # choice: the published latencies are 0.07 to 1.5 s
EARLIEST_S = 0.1  # choice: of an event after the reply's first sound
OVERLAPS: dict[str, Event] = {
    "user_interruption": "interruption",
    "user_backchannel": "backchannel",
    "talking_to_other": "side_speech",
    "background_speech": "background_speech",
}
"""The tasks of v1.5 by their folders."""


def full_duplex_bench(params: AnnotatedParams, seed: int) -> Trace:
    """One call a sample, in the order of their folders; UserError names the first that cannot be used."""
    if not os.path.isdir(params.path):
        raise UserError(
            f"path is {params.path}, which is no folder; give a folder of Full-Duplex-Bench's samples."
        )
    try:
        folders = sorted({sound.parent for sound in params.path.rglob(SOUND)}, key=_natural)
    except OSError as error:
        raise UserError(f"{params.path} cannot be read: {error.strerror}; give a readable folder.") from None
    if not folders:
        raise UserError(
            f"{params.path} has no folder with an {SOUND}; give a folder of Full-Duplex-Bench's samples."
        )
    tasks: Counter[str] = Counter()
    calls = []
    for folder in folders:
        recording = open_recording(params.path, (folder / SOUND).relative_to(params.path).as_posix())
        task, turns = _sample(folder, recording)
        tasks[task] += 1
        calls.append(HeardCall(recording, turns))
    notes = [f"Full-Duplex-Bench: {n} samples of {task}" for task, n in sorted(tasks.items())]
    return annotated_trace(calls, params, seed, "full_duplex_bench", notes)


def _sample(folder: Path, recording: Recording) -> tuple[str, list[HeardTurn]]:
    speech = speech_of(recording)
    if not speech:
        raise UserError(f"{recording.path} holds no speech that a detector finds; remove the folder.")
    whole = (speech[0][0], speech[-1][1])
    if (file := folder / "pause.json").exists():
        pauses = [_span(one, "timestamp", file, recording) for one in _list(file)]
        longest = max(
            (one for one in pauses if whole[0] < one[0] and one[1] < whole[1]), key=_length, default=None
        )
        return "pause handling", [HeardTurn(whole, pause=longest)]
    if (file := folder / "turn_taking.json").exists():
        end_s = _times(_list(file)[0], "timestamp", file)[0]
        if not whole[0] < end_s <= recording.seconds:
            raise _refused(
                file, "timestamp", end_s, f"must lie in the recording, after speech begins at {whole[0]} s"
            )
        return "smooth turn taking", [HeardTurn((whole[0], end_s))]
    if (file := folder / "interrupt.json").exists():
        span = _span(_list(file)[0], "timestamp", file, recording)
        return "user interruption", _overlap(speech, span, "interruption", file)
    if (file := folder / "metadata.json").exists():
        kind: Event | None = next(
            (OVERLAPS[name] for name in reversed(folder.parts) if name in OVERLAPS), None
        )
        if kind is None:
            raise UserError(
                f"{folder} does not lie below one of {', '.join(OVERLAPS)}; keep the benchmark's folders."
            )
        span = _span(_json(file), "timestamps", file, recording)
        return f"{kind.replace('_', ' ')} (v1.5)", _overlap(speech, span, kind, file)
    return "backchannel", [HeardTurn(whole)]


def _overlap(speech: list[Span], span: Span, kind: Event, file: Path) -> list[HeardTurn]:
    before = [one for one in speech if one[0] < span[0]]
    if not before:
        raise _refused(file, "its time", span[0], "has no speech before it")
    context = (before[0][0], min(before[-1][1], span[0]))
    after_s = max(EARLIEST_S, round(span[0] - context[1] - ANSWER_S, 3))
    if kind == "interruption":
        return [HeardTurn(context, event=kind, event_after_s=after_s), HeardTurn(span)]
    return [HeardTurn(context, event=kind, event_after_s=after_s, event_span=span)]


def _span(entry: Any, name: str, file: Path, recording: Recording) -> Span:
    begin_s, end_s = (*_times(entry, name, file), -1.0)[:2]
    if not 0 <= begin_s < end_s or end_s > recording.seconds + 0.05:
        raise _refused(
            file, name, [begin_s, end_s], f"must be a begin and an end within {recording.seconds:.2f} s"
        )
    return begin_s, min(end_s, recording.seconds)


def _times(entry: Any, name: str, file: Path) -> list[float]:
    times = entry.get(name) if isinstance(entry, dict) else None
    if not isinstance(times, list) or not times or not all(isinstance(t, int | float) for t in times):
        raise _refused(file, name, times, "must be times in s")
    return [float(t) for t in times]


def _list(file: Path) -> list[Any]:
    entries = _json(file)
    if not isinstance(entries, list) or not entries:
        raise UserError(f"{file} holds no list of annotations; take the benchmark's file.")
    return entries


def _json(file: Path) -> Any:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{file} is no JSON ({error}); take the benchmark's file.") from None


def _refused(file: Path, name: str, value: Any, rule: str) -> UserError:
    return UserError(f"{file}: {name} is {value} and {rule}; fix the file or remove its folder.")


def _length(span: Span) -> float:
    return span[1] - span[0]


def _natural(folder: Path) -> list[tuple[int, str]]:
    """2 before 10."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in folder.parts]
