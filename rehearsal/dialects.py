"""Protocols of voice servers: the base of a dialect, and what its reader makes of a server's messages.

Needs the extra `live`. docs/dialects.md says how a package brings a dialect of its own.
"""

from harness.live.endpoints.conformance import Server, check_dialect
from harness.live.endpoints.dialects.audio_format import AudioFormat
from harness.live.endpoints.dialects.dialect import CLOSE, Cut, Dialect, encode
from harness.live.endpoints.dialects.events import (
    Audio,
    AudioDone,
    Cleared,
    Committed,
    Done,
    Event,
    Failure,
    Garbage,
    Item,
    Leaves,
    Mark,
    Other,
    Ready,
    Several,
    SpeechStarted,
    SpeechStopped,
    Started,
    Text,
    ToolCall,
    UnreadAudio,
)
from harness.live.endpoints.target import TargetParams

__all__ = [
    "CLOSE",
    "Audio",
    "AudioDone",
    "AudioFormat",
    "Cleared",
    "Committed",
    "Cut",
    "Dialect",
    "Done",
    "Event",
    "Failure",
    "Garbage",
    "Item",
    "Leaves",
    "Mark",
    "Other",
    "Ready",
    "Server",
    "Several",
    "SpeechStarted",
    "SpeechStopped",
    "Started",
    "TargetParams",
    "Text",
    "ToolCall",
    "UnreadAudio",
    "check_dialect",
    "encode",
]
