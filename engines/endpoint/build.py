"""Put a server and its sessions together, without a trace: what users say comes over their sockets."""

from pydantic import BaseModel

from engines.devices.profile import Profile
from engines.endpoint.sessions import Sessions
from engines.server import ServerParams


def build_sessions(
    engine: str,
    engine_params: BaseModel,
    params: ServerParams,
    seed: int,
    device: str = "virtual",
    profile: Profile | None = None,
    frame_s: float | None = None,
) -> Sessions:
    """Sessions of a new server of ``engine``, which is their ``server``, with a new ``ledger``; inside a running loop.

    ``frame_s``: length of a frame, for engines that serve frames (default 2.0 s, the Metronome paper's). Whoever calls
    it warms the server up, starts its tasks and closes it. UserError when this machine has no such device.
    """
    raise NotImplementedError
