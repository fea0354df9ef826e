"""`rehearse proxy`: several servers behind one address, until Ctrl-C."""

from collections.abc import Callable
from typing import Annotated, Any

import typer

from reports.cli.settings import Host, Insecure, Port, TokenEnv, number, one_each, option

ROUTERS = "Rule, such as least_load or omniproxy; rehearse list engines vllm_omni names all, as routing."


def proxy(
    urls: Annotated[list[str], typer.Argument(metavar="URL...", help="Servers, each http://HOST:PORT.")],
    router: Annotated[str, option("--router", ROUTERS, "RULE")] = "omniproxy",
    settings: Annotated[
        list[str], option("--set", "A parameter of the rule; may be given several times.", "NAME=VALUE")
    ] = [],  # noqa: B006  (typer copies it)
    host: Host = "127.0.0.1",
    port: Port = 8764,
    max_in_flight: Annotated[
        int | None,
        number("--max-in-flight", "Most requests at one server; omniproxy sends short waiting ones first."),
    ] = None,
    drain: Annotated[
        float,
        option("--drain", "Time for running requests after SIGTERM; a second one ends at once.", "SECONDS"),
    ] = 30,
    token_env: TokenEnv = None,
    insecure: Insecure = False,
) -> None:
    """Put servers of one model behind one address: OpenAI's completions, chat completions and realtime sessions.

    When a server dies, the replies that it had begun are lost and all other requests go to another server. It gets
    requests again once it answers.

    `rehearse proxy http://gpu1:8000 http://gpu2:8000 --router least_load`
    """
    from harness.proxy import ProxyConfig
    from workloads.errors import validate

    config = validate(
        ProxyConfig,
        {
            "urls": urls,
            "router": router,
            "settings": one_each(settings, "a rule has one; choose one"),
            "host": host,
            "port": port,
            "max_in_flight": max_in_flight,
            "drain_s": drain,
            "token_env": token_env,
            "insecure": insecure,
        },
        "rehearse proxy",
    )
    raise typer.Exit(run(config))


def run(config: Any, draining: Callable[[], None] | None = None) -> int:
    """Serve it, print its address, and return the exit status. `draining`: called when it stops accepting
    connections."""
    from rich.console import Console

    from harness.proxy import serve

    console = Console(stderr=True, highlight=False)

    def ready(url: str) -> None:
        print(url, flush=True)  # alone on standard output, for scripts
        servers = "\n".join(f"  server   {each}" for each in config.urls)
        console.print(
            f"{config.router} before {len(config.urls)} servers\n{servers}\n"
            f"  metrics  {url}/metrics\n"
            f"  try      rehearse live {url}/v1\n"
            "Ctrl-C ends it.",
            markup=False,
        )

    status = serve(config, ready, draining)
    console.print("stopped", markup=False)
    return status
