"""LiveServe's order on calls, with Metronome's window as the bound of each call's KV: two papers' policies in one
system."""

from engines.composition import Composition
from engines.frames.library import CALLS

SYSTEMS = (
    Composition(
        "liveserve_on_calls",
        "LiveServe's order over calls whose KV Metronome's window bounds; with window=null it grows without bound",
        CALLS,
        # A call tells of its playback with each frame; two of them, by the paper's 2 s, may be awaited.
        {"scheduler": "liveserve", "window": 1024, "telemetry_timeout_s": 4.0},
    ),
)
