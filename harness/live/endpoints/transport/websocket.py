"""A WebSocket client that sends at once and says when the socket was read.

It is picows, the cheapest for a core of picows, aiohttp and websockets when each session sent a message of 20 ms of
speech every 20 ms and received a packet for each. It offers no compression: audio in base64 does not gain by it.
"""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, Protocol

import picows
from picows import WSCloseCode, WSMsgType

from harness.live.endpoints.transport.limits import LONG_READ_S, MOST_MESSAGE, MOST_PARTS, READ_AT_ONCE, Violation, size
from harness.live.endpoints.transport.route import DIRECT, Route

CLOSE_GRACE_S = 2.0  # for the peer's half of the closing handshake [chosen]
ABNORMAL = 1006  # end without a close frame [config: RFC 6455]
_TOO_LONG = f"a message above {size(MOST_MESSAGE)}"
_CONTINUATION, _PING, _CLOSE = WSMsgType.CONTINUATION, WSMsgType.PING, WSMsgType.CLOSE
_DATA = (WSMsgType.TEXT, WSMsgType.BINARY, _CONTINUATION)
_log = logging.getLogger(__name__)
_log.addHandler(logging.NullHandler())  # the receiver gets the reason of each end


class Receiver(Protocol):
    """The owner of a connection, which calls it in the order in which messages were read."""

    @property
    def seed(self) -> int:
        """Seed of all that is drawn for the connection."""
        ...

    def message(self, data: bytes, at_s: float) -> None:
        """Take one whole message. `at_s`: the loop's time when the socket read that completed it, before parsing.

        May come before `connect` returns: a server's hello can arrive with its answer to the handshake.
        """
        ...

    def closed(self, code: int, reason: str, at_s: float) -> None:
        """Note the end of the connection; called once. `code`: of the peer's close frame, with its reason; 1006 when
        there was none, with the rule or limit that the peer broke, or ""."""
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
    route: Route = DIRECT,
) -> WebSocket:
    """Open `url` (ws:// or wss://) by `route` with these additional `headers`; everything received goes to `receiver`.

    `binary`: what is sent are binary messages, and not texts.

    Redirects are not followed: headers may carry a token.

    Raises:
        ConnectFailed: after `timeout_s` (s), or as soon as it is clear that there will be no connection.
    """
    listener = _Listener(receiver)
    try:
        return await _opened(url, listener, headers, timeout_s, binary, route)
    except BaseException:
        listener.wanted = False
        raise


async def _opened(
    url: str, listener: "_Listener", headers: Mapping[str, str] | None, timeout_s: float, binary: bool, route: Route
) -> WebSocket:
    try:
        async with asyncio.timeout(timeout_s):
            transport, _ = await picows.ws_connect(
                lambda: listener,
                url,
                ssl_context=route.tls() if url.startswith("wss") else None,
                socket_factory=None if route.is_direct else lambda to: route.opened(to.host, to.port),
                websocket_handshake_timeout=timeout_s,  # else the socket of an attempt that is given up stays
                logger_name=_log,
                enable_auto_pong=False,  # frames that picows answers by itself would hide the end of a read
                max_frame_size=MOST_MESSAGE,
                extra_headers=dict(headers or {}),
                max_redirects=0,
            )
    except TimeoutError:
        raise ConnectFailed(f"no connection within {timeout_s:g} s") from None
    except picows.WSHandshakeError as error:
        status = None if error.response is None else int(error.response.status)
        reason = f"no WebSocket: {error}" if status is None else f"HTTP status {status}"
        raise ConnectFailed(reason, status) from error
    except (OSError, picows.WSError) as error:
        raise ConnectFailed(str(error) or type(error).__name__) from error
    if not listener.connected:  # hung up on before the handshake's end, which picows does not tell
        raise ConnectFailed("no WebSocket")
    return WebSocket(transport, binary)


class _Listener(picows.WSListener):
    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._loop = asyncio.get_running_loop()
        self._now = self._loop.time
        self._read_s: float | None = None
        self._message: bytearray | None = None
        """The begin of a message whose last fragment has not come."""
        self._fragments = 0
        self._ping: bytes | None = None
        """The newest that has not been answered."""
        self._fault = ""
        """The rule or limit that the peer broke."""
        self.connected = False
        self.wanted = True
        """False once nobody waits for the connection any more."""

    def on_ws_connected(self, transport: picows.WSTransport) -> None:
        if not self.wanted:
            transport.disconnect(graceful=False)
            return
        self.connected = True
        transport.underlying_transport.set_protocol(_ShortReads(transport.underlying_transport))

    def on_ws_frame(self, transport: picows.WSTransport, frame: picows.WSFrame) -> None:
        at_s = self._read_s
        if at_s is None:
            at_s = self._now()
        # Frames that came with one read came at one time, however long those before them take to handle.
        self._read_s = None if frame.last_in_buffer else at_s
        if self._fault:
            return
        kind = frame.msg_type
        try:
            if frame.rsv1 or frame.rsv2 or frame.rsv3:
                raise Violation("garbage: a compressed frame or a reserved bit, which was not agreed on")
            if kind in _DATA:
                if frame.fin and self._message is None and kind != _CONTINUATION:
                    self._receiver.message(frame.get_payload_as_bytes(), at_s)
                elif (message := self._joined(frame)) is not None:
                    self._receiver.message(message, at_s)
            elif kind == _PING:
                self._ping = frame.get_payload_as_bytes()
            elif kind == _CLOSE:
                if not transport.is_close_frame_sent:
                    transport.send_close(frame.get_close_code())
                transport.disconnect()
                return
            if self._ping is not None and frame.last_in_buffer:
                transport.send_pong(self._ping)  # the newest of a read is enough (RFC 6455, section 5.5.3)
                self._ping = None
        except Violation as error:
            self._fault, self._message = str(error), None
            transport.send_close(WSCloseCode.POLICY_VIOLATION, self._fault.encode())
            transport.disconnect(graceful=False)

    def _joined(self, frame: picows.WSFrame) -> bytes | None:
        """Return the message that a fragment completes."""
        if (self._message is None) is (frame.msg_type == _CONTINUATION):
            raise Violation("garbage: a fragment out of order")
        if self._message is None:
            self._message, self._fragments = bytearray(), 0
        self._fragments += 1
        if self._fragments > MOST_PARTS:
            raise Violation(f"a message of more than {MOST_PARTS:,} fragments")
        if len(self._message) + frame.payload_size > MOST_MESSAGE:
            raise Violation(_TOO_LONG)
        self._message += frame.get_payload_as_memoryview()
        if not frame.fin:
            return None
        whole, self._message = bytes(self._message), None
        return whole

    def on_ws_disconnected(self, transport: picows.WSTransport) -> None:
        handshake: Any = transport.close_handshake
        goodbye = handshake.recv if handshake is not None else None
        if goodbye is not None and not self._fault:
            self._receiver.closed(int(goodbye.code) or 1005, goodbye.reason or "", self._now())
        else:
            fault = self._fault or _broken(handshake.sent if handshake is not None else None)
            self._receiver.closed(ABNORMAL, fault, self._now())
        self._over = self._loop.create_task(self._ended(transport))

    async def _ended(self, transport: picows.WSTransport) -> None:
        """Take the error with which picows ended the connection. An error of ours is reported."""
        try:
            await transport.wait_disconnected()
        except picows.WSError:
            pass
        except Exception as error:
            self._loop.call_exception_handler({"message": "a receiver has failed", "exception": error})

    def pause_writing(self) -> None:
        """Do nothing: what the kernel does not take is buffered."""

    def resume_writing(self) -> None:
        pass


def _broken(sent: Any) -> str:
    """Return the reason for which picows itself closed the connection; "" if it did not. `sent`: its close frame."""
    if sent is None or sent.code not in _REFUSALS:
        return ""
    return _TOO_LONG if sent.code == WSCloseCode.MESSAGE_TOO_BIG else f"garbage: {sent.reason}"


_REFUSALS = (WSCloseCode.PROTOCOL_ERROR, WSCloseCode.INVALID_TEXT, WSCloseCode.MESSAGE_TOO_BIG)


class _ShortReads(asyncio.BufferedProtocol):
    """Hands what came to a protocol of picows in short reads. It handles all frames of a read before anything else, and
    a read of its own may be as long as the kernel's buffer, with millions of frames."""

    def __init__(self, transport: Any) -> None:
        self._transport = transport
        protocol = transport.get_protocol()
        self._buffer, self._updated = protocol.get_buffer, protocol.buffer_updated
        for name in ("buffer_updated", "eof_received", "connection_lost", "pause_writing", "resume_writing"):
            setattr(self, name, getattr(protocol, name))
        self._loop = asyncio.get_running_loop()

    def get_buffer(self, sizehint: int) -> memoryview:
        buffer = self._buffer(sizehint)
        if len(buffer) <= READ_AT_ONCE:
            return buffer
        self.buffer_updated = self._handle
        return buffer[:READ_AT_ONCE]

    def _handle(self, nbytes: int) -> None:
        begun_s = self._loop.time()
        self._updated(nbytes)
        if nbytes == READ_AT_ONCE and self._loop.time() - begun_s > LONG_READ_S:
            self._transport.pause_reading()
            self._loop.call_soon(self._transport.resume_reading)
