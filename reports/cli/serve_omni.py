"""`rehearse serve ENGINE --runtime vllm-omni`: vLLM-Omni's own API server over modelled GPUs, until Ctrl-C."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Mapping
from typing import Any

from workloads.errors import UserError, validate


def serve_omni(engine: str, values: Mapping[str, Any], port: int, given: Mapping[str, bool]) -> None:
    """Serve. `values`: settings, of the server or of the engine; `given`: options that it does not take, by whether
    they were set."""
    from engines.stock.omni.omni_params import HOST, OWN, RUNTIME, OmniParams
    from harness.serving.listener import address_of, bound, interruptible
    from harness.serving.omni_server import OmniServer

    for name, was_given in given.items():
        if was_given:
            raise UserError(
                f"{name} is not for runtime {RUNTIME}, which serves on {HOST} alone; leave it out."
            )
    own = {name: value for name, value in values.items() if name in OmniParams.model_fields}
    of_engine = {name: value for name, value in values.items() if name not in own}
    asked = {**own, "engine": engine, "engine_params": of_engine}
    params = validate(OmniParams, asked, f"rehearse serve --runtime {RUNTIME}")
    params.check()
    with bound(HOST, port) as free:
        address = address_of(free)
    port = int(address.rsplit(":", 1)[1])
    print("loading vLLM-Omni, a minute or two …", file=sys.stderr)
    stopped: list[int] = []
    with contextlib.suppress(KeyboardInterrupt), interruptible(stopped), OmniServer(params, port) as server:
        print(server.url, flush=True)  # alone on standard output, for scripts
        if params.served.speech_only:
            stages, endpoints = "talker", "/v1/audio/speech"
        else:
            stages, endpoints = "thinker and talker", "duplex sessions at /v1/realtime, /v1/chat/completions"
        by = "vLLM-Omni's own schedulers" if params.own_schedule else f"{engine} at {stages}"
        print(
            f"vLLM-Omni on modelled GPUs, {by}: {params.served.title}\n"
            f"  listens  {server.address} and nowhere else: {endpoints}\n"
            + ("" if engine == OWN else f"  signals  POST {server.address}/rehearsal/signal\n")
            + f"  metrics  {server.address}/metrics\n"
            f"  try      rehearse live {server.url} --dialect {server.dialect} --sessions 16\n"
            "Ctrl-C ends it.",
            file=sys.stderr,
        )
        if server.wait(lambda: bool(stopped)) is not None:
            raise RuntimeError(f"vLLM-Omni's server has ended by itself: {server.said()}")
    print("stopped", file=sys.stderr)
