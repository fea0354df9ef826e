"""Sessions bounded above the engine, Metronome's second baseline: at the horizon a session's request ends and a new one
begins with its latest audio (section 5.2, Fig. 10)."""

from engines.composition import Composition
from engines.frames.library import CALLS

SYSTEMS = (
    Composition(
        "recycling",
        "interaction sessions whose request is renewed by the application when it has grown to recycle_at tokens",
        CALLS,
        {"recycle_at": 1024},
    ),
)
