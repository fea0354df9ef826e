"""Duplex on systems of ours: one that serves turns, behind a gateway that listens."""

from __future__ import annotations

from typing import Any

import numpy as np
from pydantic import BaseModel

from engines.deployments import Deployment
from engines.server import ServerParams
from engines.turn_taking.listening import Listening
from engines.turn_taking.turn_taking_params import DuplexServerParams
from harness.client.client_params import ClientParams
from harness.kinds.duplex import Duplex
from harness.replays.kinds.turns import TURNS
from workloads.errors import UserError
from workloads.trace import Trace


class ReplayDuplex(Duplex):
    """The kind of open microphones. Implements `harness.replays.kinds.kind.Fronted`."""

    served_by = "turns"
    Server: type[ServerParams] = DuplexServerParams
    replicas, timing = TURNS.replicas, TURNS.timing

    def check(self, params: BaseModel, client: ClientParams, deployment: Deployment, trace: Trace) -> None:
        TURNS.check(params, client, deployment, trace)
        columns = trace.columns()
        for name, what in (("audio_s", "typed turns"), ("reply_audio_s", "written replies")):
            if np.isnan(columns[name]).any():
                raise UserError(
                    f"workload {trace.header.generator!r} has {what}, and here all is spoken; leave them out."
                )
        for name, value, needed in (
            ("c_counts", client.c_counts, "session"),
            ("playback", client.playback, "realtime"),
        ):
            if value != needed:
                raise UserError(
                    f"{name}={value} is not for an open microphone, on which calls are heard as they last; set "
                    f"{name}={needed}."
                )

    def front(self, gateway: Any, server: DuplexServerParams, seed: int) -> Listening:
        return Listening(gateway, server, seed)


DUPLEX = ReplayDuplex()
