"""One vendor's protocols a module: what a client sends in them, and what the server's events mean.

Which dialect each kind of user speaks to a target, and what a target cannot be asked, is said before anything runs.
"""

from harness.live.endpoints.dialects.dialect import Dialect
from harness.live.endpoints.dialects.openai import OpenAI, Rehearsal
from harness.live.endpoints.dialects.rtvi import RTVI
from harness.live.endpoints.dialects.sglang import SGLangDuplex, SGLangOmni
from harness.live.endpoints.dialects.vllm import VLLM, VLLMOmni
from harness.live.endpoints.target import TargetParams
from workloads.errors import UserError
from workloads.trace import Trace

_ALL = (OpenAI, Rehearsal, VLLM, VLLMOmni, SGLangOmni, SGLangDuplex, RTVI)
DIALECTS: dict[str, type[Dialect]] = {cls.name: cls for cls in _ALL}


def dialect_of(target: TargetParams) -> Dialect:
    """Return the dialect that `target` names, which must not be auto or text."""
    cls = DIALECTS[target.dialect]
    return cls(target.model_copy(update={"turn_detection": target.turn_detection or cls.turn_detection}))


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
    if not dialect.hears:
        able = ", ".join(name for name, cls in DIALECTS.items() if cls.hears)
        raise UserError(
            f"dialect {dialect.name}: its servers do not detect the ends of turns; use a server with "
            f"dialect {able}, or workload speech."
        )
    return _able(dialect, typed=False)


def for_frames(target: TargetParams) -> Dialect:
    """Return the dialect of calls without pause: frames bring only text."""
    dialect = dialect_of(target.model_copy(update={"modalities": "text"}))
    if not dialect.takes_frames:
        able = ", ".join(name for name, cls in DIALECTS.items() if cls.takes_frames)
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
