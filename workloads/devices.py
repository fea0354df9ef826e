"""The devices by name: the hardware and the clock of a point."""

from collections.abc import Iterable

from workloads.errors import UserError, nearest

LIVE = "live"
"""The device of live runs; all others replay."""
DEVICES = {
    "virtual": "modelled GPUs in virtual time: a roofline or a measured profile says how long each step takes",
    "paced": "the modelled GPUs of virtual on the wall clock: each step takes as long as the model says",
    "sockets": "the modelled GPUs of paced in a server process of its own; users reach it over real WebSockets",
    LIVE: "an endpoint that runs already, ours or anybody's, called over real sockets: rehearse live URL",
    "cpu": "vLLM really executes thinker and talker on this machine's processor, on the wall clock; vocoder modelled",
    "cuda": "vLLM really executes thinker and talker on this machine's GPU, on the wall clock; vocoder modelled",
}
REAL_DEVICES = ("cpu", "cuda")
SOCKET_DEVICES = ("sockets", LIVE)
"""Devices reached over real sockets, by load generators in their own processes."""
REPLAYING = ("virtual", "paced")
"""Devices in one process with their users: they use only the schedulers of vLLM, of any release."""
WALL_DEVICES = ("paced", *SOCKET_DEVICES, *REAL_DEVICES)
"""Devices on the wall clock: a run takes as long as its users talk, and a run at the same time would be measured as
well."""


def check_device(name: str, devices: Iterable[str] = tuple(DEVICES), of: str = "") -> None:
    """Raise UserError for a device that is not among `devices`; for "gpu" it names both kinds of GPU."""
    if name in devices:
        return
    if name.lower() in ("gpu", "gpus", "nvidia"):
        raise UserError(f"unknown device {name!r}{of}. A GPU of this machine is 'cuda', a modelled one 'virtual'.")
    raise UserError(f"unknown device {name!r}{of}.{nearest(name, devices)}")
