"""A WebSocket client that sends at once and says when the socket was read.

It is picows, the cheapest for a core of picows, aiohttp and websockets when each session sent a message of 20 ms of
speech every 20 ms and received a packet for each. It offers no compression: audio in base64 does not gain by it.
"""

import asyncio
import ssl
from collections.abc import Mapping
from functools import cache
from typing import Any, Protocol

import picows
from picows import WSMsgType

CLOSE_GRACE_S = 2.0  # for the peer's half of the closing handshake [chosen]
MAX_MESSAGE_BYTES = 64 * 2**20  # an answer of minutes of audio in one event [chosen]


class Receiver(Protocol):
    """The owner of a connection, which calls it in the order in which messages were read."""

    def message(self, data: bytes, at_s: float) -> None:
        """Take one whole message. `at_s`: the loop's time when the socket read that completed it, before parsing.

        May come before `connect` returns: a server's hello can arrive with its answer to the handshake.
        """
        ...

    def closed(self, code: int, reason: str, at_s: float) -> None:
        """Note the end of the connection; called once. `code`: of the peer's close frame, 1006 when there was none."""
        ...


class ConnectFailed(Exception):
    """A connection that could not be made. `status`: of the HTTP answer that rejected the handshake; None when there
    was none."""

    def __init__(self, reason: str, status: int | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.status = status


class WebSocket:
    """An open connection."""

    def __init__(self, transport: picows.WSTransport, binary: bool = False) -> None:
        self._transport = transport
        self._kind = WSMsgType.BINARY if binary else WSMsgType.TEXT

    def send(self, message: bytes) -> None:
        """Send one message.

        Never blocks: on return the kernel has it, or it is buffered. Does nothing once the connection is closing.
        """
        self._transport.send(self._kind, message)

    def close(self, code: int = 1000, reason: str = "") -> None:
        """Say goodbye; `Receiver.closed` follows when the peer has answered, or after `CLOSE_GRACE_S`."""
        if not self._transport.is_disconnected:
            self._transport.send_close(code, reason.encode())  # type: ignore[arg-type]
            asyncio.get_running_loop().call_later(CLOSE_GRACE_S, self.abort)

    def abort(self) -> None:
        """Drop the connection without a goodbye."""
        if not self._transport.is_disconnected:
            self._transport.disconnect(graceful=False)


async def connect(
    url: str,
    receiver: Receiver,
    *,
    headers: Mapping[str, str] | None = None,
    timeout_s: float,
    binary: bool = False,
) -> WebSocket:
    """Open `url` (ws:// or wss://) with these additional `headers`; everything received goes to `receiver`.

    `binary`: what is sent are binary messages, and not texts.

    Redirects are not followed: headers may carry a token.

    Raises:
        ConnectFailed: after `timeout_s` (s), or as soon as it is clear that there will be no connection.
    """
    listener = _Listener(receiver)
    try:
        async with asyncio.timeout(timeout_s):
            transport, _ = await picows.ws_connect(
                lambda: listener,
                url,
                ssl_context=_tls() if url.startswith("wss") else None,
                websocket_handshake_timeout=None,
                enable_auto_pong=False,  # frames that picows answers by itself would hide the end of a read
                max_frame_size=MAX_MESSAGE_BYTES,
                extra_headers=dict(headers or {}),
                max_redirects=0,
            )
    except TimeoutError:
        raise ConnectFailed(f"no connection within {timeout_s:g} s") from None
    except picows.WSHandshakeError as error:
        status = None if error.response is None else int(error.response.status)
        raise ConnectFailed("no WebSocket" if status is None else f"HTTP status {status}", status) from error
    except (OSError, picows.WSError) as error:
        raise ConnectFailed(str(error) or type(error).__name__) from error
    if not listener.connected:  # hung up on before the handshake's end, which picows does not tell
        raise ConnectFailed("no WebSocket")
    return WebSocket(transport, binary)


class _Listener(picows.WSListener):
    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._now = asyncio.get_running_loop().time
        self._read_s: float | None = None
        self._parts: list[bytes] = []
        self.connected = False

    def on_ws_connected(self, transport: picows.WSTransport) -> None:
        self.connected = True

    def on_ws_frame(self, transport: picows.WSTransport, frame: picows.WSFrame) -> None:
        at_s = self._read_s
        if at_s is None:
            at_s = self._now()
        # Frames that came with one read came at one time, however long those before them take to handle.
        self._read_s = None if frame.last_in_buffer else at_s
        kind = frame.msg_type
        if kind == WSMsgType.TEXT or kind == WSMsgType.BINARY or kind == WSMsgType.CONTINUATION:
            data = frame.get_payload_as_bytes()
            if not frame.fin:
                self._parts.append(data)
                return
            if self._parts:
                data = b"".join((*self._parts, data))
                self._parts.clear()
            self._receiver.message(data, at_s)
        elif kind == WSMsgType.PING:
            transport.send_pong(frame.get_payload_as_bytes())
        elif kind == WSMsgType.CLOSE:
            if not transport.is_close_frame_sent:
                transport.send_close(frame.get_close_code())
            transport.disconnect()

    def on_ws_disconnected(self, transport: picows.WSTransport) -> None:
        handshake: Any = transport.close_handshake
        goodbye = handshake.recv if handshake is not None else None
        if goodbye is None:
            self._receiver.closed(1006, "", self._now())
        else:
            self._receiver.closed(int(goodbye.code) or 1005, goodbye.reason or "", self._now())

    def pause_writing(self) -> None:
        """Do nothing: what the kernel does not take is buffered."""

    def resume_writing(self) -> None:
        pass


@cache
def _tls() -> ssl.SSLContext:
    """Return one context for all connections: loading the certificates takes longer than a handshake."""
    return ssl.create_default_context()
