"""Named random streams: one seed, and a purpose per stream, so that changing one draw shifts no other."""

import hashlib

import numpy as np

from workloads.errors import UserError


def stream(seed: int, name: str) -> np.random.Generator:
    """The PCG64 generator of purpose `name` under `seed` (>= 0), independent of every other name."""
    if seed < 0:
        raise UserError(f"seed must be 0 or more, got {seed}.")
    digest = hashlib.sha256(name.encode()).digest()
    key = tuple(int.from_bytes(digest[i : i + 4], "little") for i in range(0, 16, 4))
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=key)))


def child_seed(seed: int, name: str) -> int:
    """The seed of a part of a workload that is a workload itself, so that two parts draw independently."""
    return int(stream(seed, f"part {name}").integers(2**63))


class Streams:
    """The streams of one trace; `names` remembers which were used, for the trace's header."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.names: list[str] = []

    def __call__(self, name: str) -> np.random.Generator:
        if name in self.names:
            raise ValueError(f"stream {name!r} is already in use: opened again it would repeat its draws")
        self.names.append(name)
        return stream(self.seed, name)
