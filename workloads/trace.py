"""A trace: what every user does and when, one row per turn, fixed before any engine runs.

On disk it is one Parquet file with the columns of `Turn` and a JSON header under the schema-metadata key
`rehearsal`. Times are kept to whole microseconds, so the last bit of a platform's exp() changes no trace.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from itertools import groupby, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from workloads.atomic_file import output
from workloads.bounds import MOST_TURNS
from workloads.columns.classes import CLASS_COLUMNS, NO_CLASS, RequestClass, as_names
from workloads.columns.classes import rules as class_rules
from workloads.columns.duplex_events import DUPLEX_COLUMNS, ONE_BREATH, Microphone
from workloads.columns.duplex_events import rules as duplex_rules
from workloads.columns.hints import HINT_COLUMNS, NO_HINTS, Hints
from workloads.columns.hints import rules as hint_rules
from workloads.columns.jobs import JOB_COLUMNS, NO_JOB, JobTurn
from workloads.columns.jobs import rules as job_rules
from workloads.errors import UserError, existing_file, nearest
from workloads.files.packed import NO_PARQUET, read_parquet
from workloads.seeds import Streams

if TYPE_CHECKING:
    from pydantic import BaseModel

SCHEMA_VERSION = 1
HEADER_KEY = b"rehearsal"
MODALITIES = ("audio", "text")

SCHEMA = pa.schema(
    [
        pa.field("session", pa.int32(), nullable=False),
        pa.field("turn", pa.int32(), nullable=False),
        pa.field("arrival_s", pa.float64()),
        pa.field("modality", pa.string(), nullable=False),
        pa.field("input_tokens", pa.int64(), nullable=False),
        pa.field("audio_s", pa.float64()),
        pa.field("output_tokens", pa.int64(), nullable=False),
        pa.field("reply_audio_s", pa.float64()),
        pa.field("think_s", pa.float64()),
        pa.field("barge_in_after_s", pa.float64()),
        pa.field("history_tokens", pa.int64()),
        pa.field("network_s", pa.float64(), nullable=False),
        pa.field("visual_tokens", pa.int64()),
        pa.field("content", pa.int64()),
        pa.field("reference_s", pa.float64()),
        pa.field("voice", pa.int64()),
        pa.field("request_class", pa.string()),
        pa.field("priority", pa.int64()),
        pa.field("ttft_deadline_s", pa.float64()),
        pa.field("tbt_deadline_s", pa.float64()),
        pa.field("backlog", pa.int64()),
        pa.field("pause_after_s", pa.float64()),
        pa.field("pause_s", pa.float64()),
        pa.field("event", pa.string()),
        pa.field("event_after_s", pa.float64()),
        pa.field("event_s", pa.float64()),
        pa.field("waits", pa.string()),
        pa.field("prefix", pa.int64()),
        pa.field("recorded_s", pa.float64()),
        pa.field("tenant", pa.string()),
        pa.field("predicted_tokens", pa.int64()),
    ]
)
UNWRITTEN = ("reference_s", "voice", *CLASS_COLUMNS, *DUPLEX_COLUMNS, *JOB_COLUMNS, *HINT_COLUMNS)
"""Columns of cloned voices, classes, open microphones, jobs and hints: a trace that leaves one empty has a file without
it."""
LATER = ("visual_tokens", "content", *UNWRITTEN)
"""Columns younger than the first files: a file may lack them; a trace that leaves them empty keeps its hash."""
HASHED_AS = {"backlog": "pool"}
"""Columns -> the names that their hash has, so that equal turns keep their hash."""
OWN = "own_"
"""Prefix of a workload's own columns. Request tables have it too; nothing else reads it."""
CONTENTS = 2**53
"""Upper bound of contents; a float is exact below it, as a column with empty values needs."""

MADE_AT_ONCE = 64
"""Sessions whose objects are made together: enough for fast column-wise work, few enough that no client waits long.
[chosen]"""

Columns = dict[str, np.ndarray]


@dataclass(frozen=True, slots=True)
class Turn:
    """One exchange. Times in seconds from the start of the trace, or durations in seconds.

    session           0..; turn 0.. within its session
    arrival_s         scheduled start of the user's turn; None: it follows the previous turn by `think_s`
    modality          what the user sends: "audio" or "text"
    input_tokens      new tokens of this turn; for audio nominal, as the engine's model has its own audio rate
    audio_s           length of the user's speech, which takes this long to say; None for text
    output_tokens     text tokens of the complete reply
    reply_audio_s     length of the complete spoken reply; None: the reply is text only
    think_s           pause between the end of playback of the previous reply and the start of this turn
    barge_in_after_s  the user interrupts this long after the first audio of the reply; None: hears it out
    history_tokens    context before this turn as the source states it; None: the earlier turns accumulate
    network_s         one-way delay between client and server, the same on every turn of a session
    visual_tokens     how many of `input_tokens` are images or video frames; None: the turn shows nothing
    content           number below 2**53 of what is heard: equal content, equal tokens; None: shared with no turn
    reference_s       length of the recording whose voice the reply is to have; None: a voice of the model's own
    voice             number below 2**53 of that recording; None: shared with no turn
    request           its class and urgency, where the trace has any (`columns.classes`)
    microphone        pauses and sounds of an open microphone (`columns.duplex_events`)
    job               its part of an agent's job (`columns.jobs`)
    hints             what policies may know of it in advance (`columns.hints`)

    A table of turns has a column for each field, for each field of these four, and those of the workload's own.
    """

    session: int
    turn: int
    arrival_s: float | None
    modality: str
    input_tokens: int
    audio_s: float | None
    output_tokens: int
    reply_audio_s: float | None
    think_s: float | None = None
    barge_in_after_s: float | None = None
    history_tokens: int | None = None
    network_s: float = 0.0
    visual_tokens: int | None = None
    content: int | None = None
    reference_s: float | None = None
    voice: int | None = None
    request: RequestClass = NO_CLASS
    microphone: Microphone = ONE_BREATH
    job: JobTurn = NO_JOB
    hints: Hints = NO_HINTS

    @classmethod
    def of(cls, **columns: Any) -> Turn:
        """Build from a row of the table. Columns of the optional groups may be missing."""
        given: dict[str, Any] = {
            name: group(*[columns.pop(column, None) for column in _names(group)]) for name, group in GROUPS.items()
        }
        return cls(**columns, **given)

    def row(self) -> dict[str, Any]:
        """Return the turn as a row of the table: a value for each column of `SCHEMA`."""
        flat = {field.name: getattr(self, field.name) for field in fields(self) if field.name not in GROUPS}
        groups = (self.request, self.microphone, self.job, self.hints)
        return flat | {name: value for group in groups for name, value in asdict(group).items()}

    def changed(self, **columns: Any) -> Turn:
        """Return the turn with other values in these columns."""
        return Turn.of(**self.row() | columns)

    @property
    def stretches(self) -> list[tuple[float, float]]:
        """Begin and end of each stretch of its speech, s from its begin: two where the user hesitates."""
        pause_after_s, pause_s = self.microphone.pause_after_s, self.microphone.pause_s
        if not self.audio_s:
            return []
        if pause_after_s is None or pause_s is None:
            return [(0.0, self.audio_s)]
        return [(0.0, pause_after_s), (pause_after_s + pause_s, self.audio_s)]


GROUPS: dict[str, type] = {"request": RequestClass, "microphone": Microphone, "job": JobTurn, "hints": Hints}
"""Fields of `Turn` that are optional groups of columns, which few traces have."""


@dataclass(frozen=True, slots=True)
class Session:
    """One user's call: turns 0, 1, 2, ... in order."""

    id: int
    turns: tuple[Turn, ...]


@dataclass(frozen=True)
class TraceHeader:
    """The origin of a trace, and the hash of its content: equal hashes mean equal turns."""

    schema_version: int
    generator: str
    params: dict[str, Any]
    seed: int
    streams: list[str]
    notes: list[str]
    hash: str


class Trace:
    """Turns in the order of their sessions' arrival, and the header with their origin.

    Kept as columns; `sessions` makes objects of them when first asked for. Traces are equal when their headers are,
    as these hold a hash of the turns.
    """

    def __init__(self, columns: Columns, header: TraceHeader) -> None:
        """Called by `from_columns` and `load`, which check their input."""
        for values in columns.values():
            values.setflags(write=False)
        self._columns = columns
        self.header = header

    @cached_property
    def sessions(self) -> tuple[Session, ...]:
        return tuple(_sessions(self._columns))

    def each_session(self) -> Iterator[Session]:
        """Iterate over `sessions` without keeping them: they are made when they are due."""
        return _sessions(self._columns) if "sessions" not in self.__dict__ else iter(self.sessions)

    def __len__(self) -> int:
        return len(self._columns["session"])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Trace) and self.header == other.header

    def __repr__(self) -> str:
        return f"Trace({self.header.generator}, {len(self)} turns, hash {self.header.hash[:16]})"

    @classmethod
    def from_columns(
        cls,
        columns: Mapping[str, Any],
        *,
        generator: str,
        params: Mapping[str, Any] | None = None,
        seed: int = 0,
        streams: Sequence[str] = (),
        notes: Sequence[str] = (),
    ) -> Trace:
        """Build from arrays of one value per turn, in any order; NaN, "" or a missing column means None.

        Raises UserError when a value breaks the schema, and for an unknown column. A name that begins with `OWN` is a
        column of the workload's own, of numbers or of text. A scalar stands for a constant column.
        """
        tidy = _sorted(_typed(columns))
        _check(tidy)
        header = TraceHeader(
            SCHEMA_VERSION, generator, dict(params or {}), seed, list(streams), list(notes), _digest(tidy)
        )
        return cls(tidy, header)

    @classmethod
    def made(
        cls, generator: str, params: BaseModel, streams: Streams, columns: Mapping[str, Any], notes: Sequence[str]
    ) -> Trace:
        """Build as `from_columns` does, for a workload with these parameters and random streams."""
        return cls.from_columns(
            columns,
            generator=generator,
            params=params.model_dump(mode="json"),
            seed=streams.seed,
            streams=streams.names,
            notes=notes,
        )

    def with_columns(self, columns: Columns, notes: Sequence[str]) -> Trace:
        """Return a trace of the same origin with other columns and notes."""
        header = self.header
        return Trace.from_columns(
            columns,
            generator=header.generator,
            params=header.params,
            seed=header.seed,
            streams=header.streams,
            notes=notes,
        )

    @classmethod
    def from_turns(cls, turns: Iterable[Turn], generator: str = "by hand") -> Trace:
        """Build from turns in any order, such as those of a test."""
        rows = [turn.row() for turn in turns]
        return cls.from_columns({name: [row[name] for row in rows] for name in SCHEMA.names}, generator=generator)

    def columns(self) -> Columns:
        """One array per field of Turn, one value per turn; None is NaN, of text "". The arrays are read-only."""
        return dict(self._columns)

    def written(self) -> list[pa.Field]:
        """Return the fields in a file of this trace: all, without the empty columns of `UNWRITTEN`."""
        own = [
            pa.field(name, pa.string() if values.dtype.kind == "U" else pa.float64())
            for name, values in self._columns.items()
            if name.startswith(OWN)
        ]
        fields = [f for f in SCHEMA if f.name not in UNWRITTEN or not _missing(self._columns[f.name]).all()]
        return fields + own

    def values(self, field: pa.Field) -> list[Any]:
        """A column as Turn has it: int, float, str or None."""
        return _values(self._columns[field.name], field)

    def save(self, path: str | Path) -> None:
        """Write one Parquet file; UserError when the place cannot be written."""
        with output(path) as file:
            self.write(file)

    def write(self, file: BinaryIO) -> None:
        """The same into an open file; OSError."""
        fields = self.written()
        arrays = [_arrow(self._columns[field.name], field) for field in fields]
        metadata = {HEADER_KEY: json.dumps(asdict(self.header), sort_keys=True).encode()}
        pq.write_table(pa.Table.from_arrays(arrays, schema=pa.schema(fields, metadata)), file)

    @classmethod
    def load(cls, path: str | Path) -> Trace:
        """Read a file written by `save`; UserError if it is not a trace, damaged, or newer than this code."""
        path = existing_file(path)
        try:
            table = read_parquet(path)
        except NO_PARQUET:
            raise UserError(f"{path} is not a Parquet file; {_made_from(path)}.") from None
        header = _read_header(table, path)
        columns = _read_columns(table, path)
        try:
            _check(columns)
        except UserError as error:
            raise UserError(f"{path}: {error}") from None
        if _digest(columns) != header.hash:
            raise UserError(f"{path}: its turns do not match the hash in its header; make the trace again.")
        return cls(columns, header)


def check_turns(turns: float, fix: str) -> None:
    """UserError for a trace of more than `MOST_TURNS` turns, before it is made; `fix` ends the sentence."""
    if turns > MOST_TURNS:
        raise UserError(f"the trace would have {turns:,.0f} turns, and {MOST_TURNS:,} are the most; {fix}.")


def _made_from(path: Path) -> str:
    """Return a hint on how to make a trace of the file, for an error message."""
    if path.suffix in (".csv", ".gz", ".json"):
        made = f"rehearse trace make WORKLOAD --set path={path} --out trace.parquet"
        return f"a trace is made of it by `{made}`, with a workload that replays a file, such as sessions"
    return "make a trace with `rehearse trace make`"


def _typed(columns: Mapping[str, Any]) -> Columns:
    """Every column of the schema, in its order: int64, float64 with NaN for None, or str with "" for None."""
    size = len(columns["session"])
    typed: Columns = {}
    for field in SCHEMA:
        values = columns.get(field.name)
        if field.type != pa.string():
            dtype = np.float64 if field.nullable or pa.types.is_floating(field.type) else np.int64
            array = np.asarray(np.nan if values is None else values, dtype)
        elif field.nullable:
            array = as_names(values)
        else:
            array = np.asarray(np.nan if values is None else values, str)
        array = np.broadcast_to(array, (size,)) if array.ndim == 0 else array
        typed[field.name] = np.round(array, 6) + 0.0 if pa.types.is_floating(field.type) else array
    for name in sorted(columns.keys() - typed.keys()):
        if not name.startswith(OWN):
            near = nearest(name, SCHEMA.names)
            raise UserError(f"unknown column {name!r} of a trace.{near} Your own columns begin with {OWN}.")
        typed[name] = _own(columns[name], size)
    return typed


def _own(values: Any, size: int) -> np.ndarray:
    """A column of the workload's own: float64 with NaN for None, or str with "" for None."""
    array = np.asarray(values)
    if array.dtype.kind == "O" and all(each is None or isinstance(each, int | float) for each in array.flat):
        array = array.astype(np.float64)
    array = np.round(array.astype(np.float64), 6) + 0.0 if array.dtype.kind in "biuf" else as_names(array)
    return np.broadcast_to(array, (size,)) if array.ndim == 0 else array


def _arrow(values: np.ndarray, field: pa.Field) -> pa.Array:
    if field.type != pa.string():
        return pa.array(values, from_pandas=True).cast(field.type)
    if field.nullable:
        return pa.array(values, field.type, mask=_missing(values))
    return pa.DictionaryArray.from_arrays(_codes(values), list(MODALITIES)).cast(field.type)


def _missing(values: np.ndarray) -> np.ndarray:
    return values == "" if values.dtype.kind == "U" else np.isnan(values)


def _codes(modality: np.ndarray) -> np.ndarray:
    """Each turn's place in MODALITIES, as bytes."""
    return (modality == MODALITIES[1]).astype("u1")


def _sorted(columns: Columns) -> Columns:
    """Sessions by the arrival of their first turn (ties: in order of ids), turns in order within each."""
    ids, of_row = np.unique(columns["session"], return_inverse=True)
    first = np.full(len(ids), np.inf)
    opening = (columns["turn"] == 0) & ~np.isnan(columns["arrival_s"])
    np.minimum.at(first, of_row[opening], columns["arrival_s"][opening])
    order = np.lexsort((columns["turn"], of_row, first[of_row]))
    return {name: values[order] for name, values in columns.items()}


def _check(columns: Columns) -> None:
    """UserError about the first turn that breaks the schema."""
    session, turn, arrival = columns["session"], columns["turn"], columns["arrival_s"]
    if len(session) == 0:
        raise UserError("the trace is empty; it needs at least one turn.")
    starts = np.flatnonzero(np.diff(session, prepend=session[0] - 1))
    lengths = np.diff(starts, append=len(session))
    spoken = columns["modality"] == "audio"
    earlier = np.where(turn > 0, np.roll(arrival, 1), np.nan)
    think, network, backlog = (columns["think_s"], columns["network_s"], np.nan_to_num(columns["backlog"], nan=-1))
    silent = np.isnan(columns["reply_audio_s"])
    unseen = columns["visual_tokens"] > columns["input_tokens"]
    rules: list[tuple[str, np.ndarray, str]] = [
        ("session", session < 0, "must be 0 or more"),
        ("turn", turn != np.arange(len(turn)) - np.repeat(starts, lengths), "turns must count 0, 1, 2, ..."),
        ("arrival_s", (turn == 0) & np.isnan(arrival), "the first turn of a session needs an arrival time"),
        ("arrival_s", arrival < earlier, "must not lie before the previous turn"),
        ("think_s", np.isnan(arrival) & np.isnan(think), "a turn needs an arrival or a think time"),
        ("modality", ~np.isin(columns["modality"], MODALITIES), "must be audio or text"),
        ("input_tokens", columns["input_tokens"] < 1, "must be at least 1"),
        ("output_tokens", columns["output_tokens"] < 1, "must be at least 1"),
        ("audio_s", spoken & ~(columns["audio_s"] > 0), "a spoken turn must last longer than 0 s"),
        ("audio_s", ~spoken & ~np.isnan(columns["audio_s"]), "a typed turn has no audio"),
        ("reply_audio_s", columns["reply_audio_s"] <= 0, "must be more than 0 s"),
        ("barge_in_after_s", ~np.isnan(columns["barge_in_after_s"]) & silent, "needs a spoken reply"),
        ("visual_tokens", unseen, "must be part of the input tokens"),
        ("content", columns["content"] >= CONTENTS, "must be below 2**53"),
        ("reference_s", ~np.isnan(columns["reference_s"]) & silent, "needs a spoken reply"),
        ("voice", columns["voice"] >= CONTENTS, "must be below 2**53"),
        ("network_s", np.isnan(network), "must be given"),
        ("network_s", network != np.repeat(network[starts], lengths), "must not change within a session"),
        ("backlog", backlog != np.repeat(backlog[starts], lengths), "must not change within a session"),
        *class_rules(columns),
        *duplex_rules(columns),
        *job_rules(columns),
        *hint_rules(columns),
    ]
    for name, values in columns.items():
        if name.startswith(OWN):
            if values.dtype.kind == "f":
                rules.append((name, np.isinf(values), "must be finite"))
        elif values.dtype == np.float64 and name != "priority":
            rules.append((name, (values < 0) | np.isinf(values), "must be finite and not negative"))
    for name, bad, rule in rules:
        if bad.any():
            row = int(np.argmax(bad))
            value = columns[name][row].item()
            value = None if value != value else value
            raise UserError(f"session {session[row]} turn {turn[row]}: {name} is {value}; {rule}.")
    if len(np.unique(session)) != len(starts):
        raise UserError("the turns of a session are not together; make the trace again.")


def _digest(columns: Columns) -> str:
    """sha256 over names and little-endian values, so that it depends on no library's file format."""
    digest = hashlib.sha256(f"trace {SCHEMA_VERSION} {len(columns['session'])}".encode())
    for name, values in columns.items():
        if name in LATER and _missing(values).all():
            continue
        digest.update(f"\n{HASHED_AS.get(name, name)}\n".encode())
        if values.dtype == np.float64:
            values = np.where(np.isnan(values), np.nan, values).astype("<f8")
        elif values.dtype == np.int64:
            values = values.astype("<i8")
        elif name == "modality":
            values = _codes(values)
        else:
            names, places = np.unique(values, return_inverse=True)  # no name has a blank or a line feed
            known = json.dumps(names.tolist()) if name.startswith(OWN) else " ".join(names.tolist())
            digest.update(known.encode() + b"\n")
            values = places.astype("<i8")
        digest.update(values.tobytes())
    return digest.hexdigest()


def _sessions(columns: Columns) -> Iterator[Session]:
    session = columns["session"]
    starts = np.flatnonzero(np.diff(session, prepend=session[0] - 1))[::MADE_AT_ONCE]
    for begin, end in pairwise([*starts.tolist(), len(session)]):
        lists = {field.name: _values(columns[field.name][begin:end], field) for field in SCHEMA}
        groups = [_group(group, [lists.pop(name) for name in _names(group)]) for group in GROUPS.values()]
        turns = (Turn(*row) for row in zip(*lists.values(), *groups, strict=True))
        for id, group in groupby(turns, key=lambda turn: turn.session):
            yield Session(id, tuple(group))


def _group(group: Callable[..., Any], lists: list[list[Any]]) -> list[Any]:
    """Return an optional group of each turn. Turns without a value in it share one object."""
    if not any(value is not None for values in lists for value in values):
        return [group()] * len(lists[0])
    return [group(*row) for row in zip(*lists, strict=True)]


def _names(group: Any) -> tuple[str, ...]:
    return tuple(field.name for field in fields(group))


def _values(values: np.ndarray, field: pa.Field) -> list[Any]:
    if not field.nullable:
        return values.tolist()
    if field.type == pa.string():
        return [item or None for item in values.tolist()]
    python_type = int if pa.types.is_integer(field.type) else float
    return [None if item != item else python_type(item) for item in values.tolist()]


def _read_header(table: pa.Table, path: Path) -> TraceHeader:
    raw = (table.schema.metadata or {}).get(HEADER_KEY)
    if raw is None:
        raise UserError(f"{path} has no trace header; make a trace with `rehearse trace make`.")
    try:
        fields = json.loads(raw)
        version = int(fields["schema_version"])
        if version <= SCHEMA_VERSION:
            return _header(fields)
    except (KeyError, RecursionError, TypeError, ValueError):
        raise UserError(f"{path} has a damaged trace header; make the trace again.") from None
    raise UserError(f"{path} has schema version {version}, newer than {SCHEMA_VERSION}; upgrade rehearsal to read it.")


def _header(fields: dict[str, Any]) -> TraceHeader:
    """Return the header of these fields. TypeError where one is missing or of another type."""
    header = TraceHeader(**fields)
    texts = (header.generator, header.hash, *header.streams, *header.notes)
    if not (
        isinstance(header.params, dict)
        and (type(header.schema_version), type(header.seed)) == (int, int)
        and isinstance(header.streams, list)
        and isinstance(header.notes, list)
        and all(isinstance(text, str) for text in texts)
    ):
        raise TypeError("a field of the header is of another type")
    return header


def _read_columns(table: pa.Table, path: Path) -> Columns:
    fields = [field for field in SCHEMA if field.name in table.column_names or field.name not in LATER]
    for field in fields:
        if field.name not in table.column_names:
            present = ", ".join(table.column_names)
            raise UserError(f"{path} has no column {field.name!r} (found: {present}); make the trace again.")
        if not field.nullable and table[field.name].null_count:
            raise UserError(f"{path}: column {field.name!r} has empty values; make the trace again.")
    own = [field for field in table.schema if field.name.startswith(OWN)]
    schema = pa.schema([*fields, *own])
    try:
        table = table.select(schema.names).cast(schema)
    except (pa.ArrowException, ValueError) as error:
        raise UserError(f"{path}: a column has the wrong type ({error}); make the trace again.") from None
    return _typed({name: table[name].to_numpy() for name in schema.names})
