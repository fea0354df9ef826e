"""An engine behind a WebSocket endpoint: in this process (``serve``), or in one of its own (``ServerProcess``).

The same engine loop as in a replay, on the wall clock; ``engines.endpoint`` is its front. The module loads neither
vLLM nor torch until it serves.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from typing import IO, Any, Literal, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, Field

from engines.endpoint.limits import Limits
from engines.registry import ENGINES, REAL_DEVICES
from engines.server import ServerParams
from workloads.errors import UserError, nearest, validate

REALTIME_PATH = "/v1/realtime"
LOOPBACK = ("127.0.0.1", "::1", "localhost")
SMALL_DEPLOYMENT = "speech_tiny"
"""What really runs on any machine; served on real devices where no deployment is set."""


class ServeConfig(BaseModel):
    """What to serve, where, and within which limits; ``check`` it before use. It holds no secrets."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    engine: str
    device: Literal["virtual", "cpu", "cuda"] = "virtual"
    settings: dict[str, Any] = Field(default_factory=dict, description="engine and server parameters, by name")
    profile: dict[str, Any] | None = Field(None, description="content of a profile file, for device virtual")
    seed: int = Field(0, ge=0)
    frame_s: float = Field(2.0, gt=0, description="audio of a frame, s, of engines that serve frames")
    host: str = "127.0.0.1"
    port: int = Field(0, ge=0, le=65535, description="0: any free one")
    limits: Limits = Limits()
    token_env: str | None = Field(None, description="environment variable with the token that clients show")
    insecure: bool = Field(False, description="serve others than this machine without a token")


class Ready(NamedTuple):
    """The server listens. ``url``: of its realtime endpoint; ``metrics_url``: of its Prometheus metrics."""

    url: str
    metrics_url: str


class Status(NamedTuple):
    """What a server does now. ``ttfp_p50_s``: of turns in the last seconds; None: there were none."""

    sessions: int
    turns: int
    refused: int
    ttfp_p50_s: float | None
    loop_lag_ms: float


def check(config: ServeConfig) -> None:
    """UserError when ``config`` names what does not exist, cannot run here or would be open to everybody."""
    raise NotImplementedError


def serve(
    config: ServeConfig,
    ready: Callable[[Ready], None],
    status: Callable[[Status], None] | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT; ``ready`` is called once clients can connect, ``status`` every few seconds.

    UserError when it cannot begin: everything that ``check`` says, or the port is taken.
    """
    raise NotImplementedError


class ServerProcess:
    """A server in a process of its own, as a context manager; it ends with the block, and with this process.

    UserError on entry with the sentence of the server when it cannot begin.
    """

    def __init__(self, config: ServeConfig, *, timeout_s: float = 180, core: int | None = None) -> None:
        self._config = config
        self._timeout_s = timeout_s
        self._core = core
        self.url = ""
        self.metrics_url = ""
        self.pid = 0

    def __enter__(self) -> Self:
        raise NotImplementedError

    def __exit__(self, *_: object) -> None:
        raise NotImplementedError
