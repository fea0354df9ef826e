"""`rehearse serve`: an engine behind a realtime endpoint, until Ctrl-C."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from reports.cli.completion import named
from reports.cli.settings import SETTINGS, flag, number, one_each, option
from workloads.bounds import MOST_SEED
from workloads.errors import UserError, validate

if TYPE_CHECKING:
    from harness.serving import Ready, ServeConfig, Status


def serve(
    engine: Annotated[
        str, typer.Argument(metavar="ENGINE", help="See `rehearse list engines`.", autocompletion=named("engines"))
    ],
    device: str = option("virtual", "virtual (modelled GPUs), cpu or cuda (vLLM really executes)."),
    settings: list[str] = SETTINGS,
    profile: Path | None = option(None, "Step times of `rehearse profile`, for device virtual.", "FILE"),
    host: str = option("127.0.0.1", "Address to listen on."),
    port: int = number(8765, "0: any free one.", None, least=0),
    max_sessions: int = number(64, "Most sessions at a time; the next gets close code 1013."),
    idle_timeout: float = option(120, "Close a session after this time without a message.", "SECONDS"),
    token_env: str | None = option(None, "Environment variable with the clients' token.", "NAME"),
    insecure: bool = flag("--insecure", "Let other machines in without a token."),
    drain: float = option(30, "Time for running replies after SIGTERM; a second one ends at once.", "SECONDS"),
    frame: float = option(2.0, "Length of a frame, for engines that serve frames.", "SECONDS"),
    seed: int = number(0, "Seed of the reply lengths.", least=0, most=MOST_SEED, metavar=None),
    runtime: Literal["rehearsal", "vllm-omni"] = option(
        "rehearsal", "Server and pipeline: ours, or vLLM-Omni's own (`make omni`)."
    ),
) -> None:
    """Serve ENGINE over WebSocket, in a subset of OpenAI's Realtime protocol, with Prometheus metrics.

    --device cpu executes a small model with random weights. --runtime vllm-omni runs vLLM-Omni itself, on modelled GPUs
    and under this policy.

    `rehearse serve liveserve`

    `rehearse serve vllm_omni --device cpu`

    `rehearse serve vllm_omni --set deployment=qwen3_tts_2gpu`

    `rehearse serve metronome --set admission=aimd --frame 1`

    `rehearse serve liveserve --host 0.0.0.0 --token-env REHEARSAL_TOKEN`

    `rehearse serve liveserve --runtime vllm-omni`
    """
    from engines.devices.profile import load_profile
    from engines.endpoint.limits import Limits
    from harness import serving
    from workloads.devices import check_device

    if runtime == "vllm-omni":
        others = {"--device": device != "virtual", "--profile": profile is not None}
        others |= {"--host": host != "127.0.0.1", "--token-env": token_env is not None}
        return _serve_omni(engine, one_each(settings, "a server has one; choose one"), port, others)
    check_device(device, serving.DEVICES, of=" of a server")
    if profile is not None and device != "virtual":
        raise UserError(f"--profile {profile} is for device virtual; leave it out for device {device}.")
    values = one_each(settings, "a server has one; choose one")
    limits: dict[str, Any] = {"max_sessions": max_sessions, "idle_timeout_s": idle_timeout}
    for name in set(values) & set(Limits.model_fields):
        limits[name] = values.pop(name)
    replayed = load_profile(str(profile)).model_dump(mode="json") if profile is not None else None
    asked: dict[str, Any] = {"engine": engine, "device": device, "settings": values, "profile": replayed, "host": host}
    asked |= {"port": port, "token_env": token_env, "insecure": insecure, "seed": seed, "frame_s": frame}
    asked |= {"drain_s": drain, "limits": validate(Limits, limits, "limits")}
    config = validate(serving.ServeConfig, asked, "rehearse serve")
    serving.check(config)
    say = _Says(config)
    shown = say.status if say.console.is_terminal else None
    status = serving.serve(config, say.ready, shown, say.loading, say.draining)
    say.over()
    serving.leave(status)


def _serve_omni(engine: str, values: Mapping[str, Any], port: int, given: Mapping[str, bool]) -> None:
    """vLLM-Omni's own API server over modelled GPUs. `values`: settings, of the server or of the engine; `given`:
    options that it does not take, by whether they were set."""
    from engines.stock.omni.omni_params import HOST, OWN, RUNTIME, OmniParams
    from harness.serving.listener import address_of, bound, interruptible
    from harness.serving.omni_server import OmniServer

    for name, was_given in given.items():
        if was_given:
            raise UserError(f"{name} is not for runtime {RUNTIME}, which serves on {HOST} alone; leave it out.")
    server_values = {name: value for name, value in values.items() if name in OmniParams.model_fields}
    of_engine = {name: value for name, value in values.items() if name not in server_values}
    asked = {**server_values, "engine": engine, "engine_params": of_engine}
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


class _Says:
    """The messages to the server's owner: the address, and on a terminal every few seconds its state."""

    def __init__(self, config: ServeConfig) -> None:
        from rich.console import Console

        self.console = Console(stderr=True, highlight=False)
        self._config = config

    def loading(self, address: str) -> None:
        self.console.print(f"loading vLLM …  {address}/health answers 'starting' until then", markup=False)

    def ready(self, where: Ready) -> None:
        from engines.registry import ENGINES
        from engines.server import resolve
        from harness.serving import parameters

        config = self._config
        deployment = resolve(parameters(config)[1])
        kind = "modelled GPUs" if config.device == "virtual" else f"device {config.device}"
        entrance = "clients need the token" if config.token_env else "no token"
        print(where.url, flush=True)  # alone on standard output, for scripts
        self.console.print(
            f"{config.engine} on {kind}: {deployment.title}\n"
            f"  serves   {ENGINES[config.engine].kind}, {config.limits.max_sessions} sessions at once, {entrance}\n"
            f"  metrics  {where.metrics_url}\n"
            f"  try      rehearse live {where.url}\n"
            "Ctrl-C ends it.",
            markup=False,
        )

    def status(self, now: Status) -> None:
        ttfp = "–" if now.ttfp_p50_s is None else f"{1e3 * now.ttfp_p50_s:.0f} ms"
        line = f"{now.sessions} sessions, {now.turns} turns, TTFP P50 {ttfp}, rejected {now.refused}, "
        line += f"loop lag {now.loop_lag_ms:.1f} ms"
        self.console.print(f"{line:<{self.console.width - 1}}"[: self.console.width - 1], end="\r", markup=False)

    def draining(self, replies: int, within_s: float) -> None:
        count = "1 reply" if replies == 1 else f"{replies} replies"
        text = f"finishing {count}, for {within_s:g} s at most" if within_s else f"{count} cut: the time is up"
        self.console.print(text.ljust(self.console.width - 1), markup=False)

    def over(self) -> None:
        self.console.print("stopped".ljust(self.console.width - 1), markup=False)
