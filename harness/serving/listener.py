"""The socket that a server listens on, and the signals that end it."""

import asyncio
import contextlib
import errno
import resource
import signal
import socket
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

from harness.exit_status import OK, SIGNALLED
from workloads.errors import UserError
from workloads.host_names import check_host


@contextlib.contextmanager
def bound(host: str, port: int) -> Iterator[socket.socket]:
    """Return a socket that is bound and does not listen yet; taken early, because models take long to load. UserError
    when it cannot be had."""
    where = f"port {port} of {host}"
    try:
        check_host(host)
    except ValueError as error:
        raise UserError(f"host {host!r} {error}.") from None
    try:
        (family, kind, protocol, _, address), *_ = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except OSError as error:
        raise UserError(f"host {host!r} is unknown ({error.strerror}); give an address of this machine.") from None
    with socket.socket(family, kind, protocol) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(address)
        except PermissionError:
            raise UserError(f"{where} is reserved for the system; choose another with --port.") from None
        except OSError as error:
            taken = "is taken" if error.errno == errno.EADDRINUSE else f"cannot be used ({error.strerror})"
            fix = "choose another with --port, or 0 for any free one."
            raise UserError(f"{where} {taken}; {fix}") from None
        yield listener


def address_of(listener: socket.socket) -> str:
    """Return HOST:PORT under which this machine reaches it."""
    bound, port = listener.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(bound, str(bound))
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def asked_to_stop(asked: list[int]) -> asyncio.Event:
    """Return an event that the first SIGTERM or SIGINT sets, which join `asked`; a second one cancels the calling
    task."""
    stop, loop, main = asyncio.Event(), asyncio.get_running_loop(), asyncio.current_task()
    assert main is not None

    def on_signal(number: int) -> None:
        asked.append(number)
        if stop.is_set():
            main.cancel()
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal, number)
    return stop


@contextlib.contextmanager
def interruptible(asked: list[int]) -> Iterator[None]:
    """Let SIGTERM and SIGINT, which join `asked`, end the block, also while models load, when no event loop sees
    them."""

    def stop(number: int, _: object) -> None:
        asked.append(number)
        raise KeyboardInterrupt

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def run_until_stopped(
    host: str,
    port: int,
    loop_factory: Callable[[], asyncio.AbstractEventLoop],
    main: Callable[[socket.socket, list[int]], Coroutine[Any, Any, None]],
) -> int:
    """Run `main(listener, asked)` with a bound socket until it or a signal, which joins `asked`, ends it. Must be
    called in the main thread. Returns the exit status: 0, or after a second signal 128 and its number."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # the usual 1,024 sockets are fewer than a burst
    asked: list[int] = []
    with (
        bound(host, port) as listener,
        contextlib.suppress(KeyboardInterrupt, asyncio.CancelledError),
        interruptible(asked),
        asyncio.Runner(loop_factory=loop_factory) as runner,
    ):
        runner.run(main(listener, asked))
    return SIGNALLED + asked[1] if len(asked) > 1 else OK
