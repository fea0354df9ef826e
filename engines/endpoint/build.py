"""Put a server and its sessions together, without a trace: what users say comes over their sockets."""

from pydantic import BaseModel

from engines.devices.names import REAL_DEVICES
from engines.devices.profile import Profile
from engines.endpoint.ledger import Ledger
from engines.endpoint.sessions import Sessions
from engines.endpoint.sounds import Sounds
from engines.endpoint.words import words_of
from engines.parts import Parts
from engines.registry import ENGINES
from engines.server import ServerParams, resolve
from workloads.calls import FRAME_S


def build_sessions(
    engine: str,
    engine_params: BaseModel,
    params: ServerParams,
    seed: int,
    device: str = "virtual",
    profile: Profile | None = None,
    frame_s: float | None = None,
) -> Sessions:
    """Sessions of a new server of `engine`, which is their `server`, with a new `ledger`; inside a running loop.

    `frame_s`: length of a frame, for engines that serve frames (default 2.0 s, the Metronome paper's). Whoever calls
    it warms the server up, starts its tasks and closes it. UserError when this machine has no such device.
    """
    ledger = Ledger()
    hears = device in REAL_DEVICES and resolve(params).hears
    sounds = Sounds(kept=hears)
    parts = Parts(params, ledger, seed, device, profile=profile, sound=sounds, frame_s=frame_s or FRAME_S)
    server = ENGINES[engine].build(parts, engine_params)
    return Sessions(
        server,
        ledger,
        engine=engine,
        device=device,
        seed=seed,
        sounds=sounds,
        words=words_of(params.checkpoint if device in REAL_DEVICES else None),
    )
