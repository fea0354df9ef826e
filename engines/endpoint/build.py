"""Put a server and its sessions together, without a trace: what users say comes over their sockets."""

from pydantic import BaseModel

from engines.builder import Parts
from engines.devices.names import REAL_DEVICES
from engines.devices.profile import Profile
from engines.endpoint.audio_store import AudioStore
from engines.endpoint.detokenizer import detokenizer_of
from engines.endpoint.server_stats import ServerStats
from engines.endpoint.sessions import Sessions
from engines.registry import ENGINES
from engines.server import ServerParams, resolve
from workloads.generators.calls import FRAME_S


def build_sessions(
    engine: str,
    engine_params: BaseModel,
    params: ServerParams,
    seed: int,
    device: str = "virtual",
    profile: Profile | None = None,
    frame_s: float | None = None,
) -> Sessions:
    """Sessions of a new server of `engine`, which is their `server`, with a new `stats`; inside a running loop.

    `frame_s`: length of a frame, for engines that serve frames (default 2.0 s, the Metronome paper's). Whoever calls
    it warms the server up, starts its tasks and closes it. UserError when this machine has no such device.
    """
    deployment = resolve(params)
    stats = ServerStats(deployment.entry)
    encodes = device in REAL_DEVICES and deployment.hears
    audio_store = AudioStore(kept=encodes)
    parts = Parts(params, stats, seed, device, profile=profile, sound=audio_store, frame_s=frame_s or FRAME_S)
    server = ENGINES[engine].build(parts, engine_params)
    return Sessions(
        server,
        stats,
        engine=engine,
        device=device,
        seed=seed,
        audio_store=audio_store,
        detokenizer=detokenizer_of(params.checkpoint if device in REAL_DEVICES else None),
    )
