"""`rehearse proxy`: several servers behind one address, until Ctrl-C."""

from collections.abc import Callable
from typing import Annotated, Any

import typer

from reports.cli.settings import HOST, INSECURE, TOKEN_ENV, number, one_each, option

ROUTERS = "Rule, such as least_load or omniproxy; rehearse list engines vllm_omni names all, as routing."


def proxy(
    urls: Annotated[list[str], typer.Argument(metavar="URL...", help="Servers, each http://HOST:PORT.")],
    router: str = option("omniproxy", ROUTERS, "RULE"),
    settings: list[str] = option(
        [], "A parameter of the rule; may be given several times.", "NAME=VALUE", name="--set"
    ),
    host: str = HOST,
    port: int = number(8764, "0: any free one.", None, least=0),
    max_in_flight: int | None = number(
        None, "Most requests at one server; omniproxy sends short waiting ones first."
    ),
    drain: float = option(
        30, "Time for running requests after SIGTERM; a second one ends at once.", "SECONDS"
    ),
    token_env: str | None = TOKEN_ENV,
    insecure: bool = INSECURE,
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
