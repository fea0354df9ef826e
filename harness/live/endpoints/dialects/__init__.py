"""One vendor's protocols a module: what a client sends in them, and what the server's events mean.

Which dialect each kind of user speaks to a target, and what a target cannot be asked, is said before anything runs.
"""

from functools import cache

from harness.live.endpoints.dialects.dialect import Dialect
from harness.live.endpoints.dialects.gemini import Gemini
from harness.live.endpoints.dialects.openai import OpenAI, Rehearsal
from harness.live.endpoints.dialects.rtvi import RTVI
from harness.live.endpoints.dialects.sglang import SGLangDuplex, SGLangOmni
from harness.live.endpoints.dialects.twilio import Telnyx, Twilio
from harness.live.endpoints.dialects.vllm import VLLM, VLLMOmni
from harness.live.endpoints.dialects.webrtc import OpenAIWebRTC, RTVIWebRTC
from harness.live.endpoints.target import DIALECTS as OURS
from harness.live.endpoints.target import GROUP, TargetParams
from workloads.errors import UserError
from workloads.plugins import entry_points, load
from workloads.trace import Trace

_OURS = (
    *(OpenAIWebRTC, RTVIWebRTC, OpenAI, Rehearsal, VLLM, SGLangOmni, VLLMOmni, SGLangDuplex),
    *(RTVI, Twilio, Telnyx, Gemini),
)
DIALECTS: dict[str, type[Dialect]] = {cls.name: cls for cls in _OURS}
"""Our dialects of calls by name."""


@cache
def dialects() -> dict[str, type[Dialect]]:
    """Return all dialects of calls by name: ours, and those of other packages. Detection asks the last first.
    UserError for an entry point that names no dialect, or one whose name is taken."""
    known = dict(DIALECTS)
    for entry in entry_points(group=GROUP):
        cls = load(entry)
        if not (isinstance(cls, type) and issubclass(cls, Dialect)) or cls.name != entry.name:
            raise UserError(
                f"{entry.value}, which an installed package names as {entry.name} of {GROUP}, is no subclass of "
                f"rehearsal.Dialect with name = {entry.name!r}; correct or uninstall that package."
            )
        if entry.name in {*known, *OURS}:
            raise UserError(
                f"{entry.value} and another dialect are both called {entry.name!r}; rename the entry point of group "
                f"{GROUP}, or uninstall that package."
            )
        known[entry.name] = cls
    return known


def known_at(url: str) -> str | None:
    """Return the dialect that a server at `url` is known to speak; None: the url does not say."""
    return next((name for name, cls in dialects().items() if cls.at(url)), None)


def greeted_by(first: bytes) -> str | None:
    """Return the dialect whose servers say `first` first; None: no dialect's."""
    return next((name for name, cls in reversed(dialects().items()) if cls.greets(first)), None)


def dialect_of(target: TargetParams) -> Dialect:
    """Return the dialect that `target` names, which must not be auto or text."""
    cls = dialects()[target.dialect]
    return cls(target.model_copy(update={"turn_detection": target.turn_detection or cls.turn_detection[0]}))


def for_turns(target: TargetParams, trace: Trace) -> Dialect:
    """Return the dialect of users who take turns; `target` names its dialect. UserError where it cannot do what `trace`
    needs."""
    typed = any(not turn.audio_s for session in trace.sessions for turn in session.turns)
    return _able(dialect_of(target), typed)


def for_open_microphone(target: TargetParams) -> Dialect:
    """Return the dialect of users whose microphone stays open: the server decides when a turn has ended."""
    if target.turn_detection in (None, "client"):
        target = target.model_copy(update={"turn_detection": "server"})
    dialect = dialect_of(target)
    if "server" not in dialect.turn_detection:
        able = ", ".join(name for name, cls in dialects().items() if "server" in cls.turn_detection)
        raise UserError(
            f"dialect {dialect.name}: its servers do not detect the ends of turns; use a server with "
            f"dialect {able}, or workload speech."
        )
    return _able(dialect, typed=False)


def for_frames(target: TargetParams) -> Dialect:
    """Return the dialect of calls without pause: frames bring only text."""
    dialect = dialect_of(target.model_copy(update={"modalities": "text"}))
    if not dialect.takes_frames:
        able = ", ".join(name for name, cls in dialects().items() if cls.takes_frames)
        raise UserError(
            f"dialect {dialect.name}: its servers answer turns and not frames; use a workload of turns, or a server "
            f"with dialect {able}."
        )
    return dialect


def _able(dialect: Dialect, typed: bool) -> Dialect:
    why = dialect.cannot(typed)
    if why is not None:
        raise UserError(f"dialect {dialect.name}: {why}.")
    return dialect
