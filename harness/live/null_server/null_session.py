"""One WebSocket connection of the null server: what its protocols share."""

import picows
from picows import WSMsgType

from harness.live.null_server.pace import Answer, Pace


class NullSession(picows.WSListener):
    """Counts messages, and stops its answer when the client hangs up. A protocol answers each message in `heard`."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._answer: Answer | None = None

    def heard(self, read_s: float, data: bytes) -> None:
        """Answer a message that was read at `read_s`, s of the loop's clock."""
        raise NotImplementedError

    def on_ws_connected(self, transport: picows.WSTransport) -> None:
        self._transport = transport

    def on_ws_disconnected(self, transport: picows.WSTransport) -> None:
        if self._answer is not None:
            self._answer.cancel()

    def on_ws_frame(self, transport: picows.WSTransport, frame: picows.WSFrame) -> None:
        read_s = self._pace.loop.time()
        self._pace.truth.messages_in += 1
        if frame.msg_type == WSMsgType.CLOSE:
            transport.send_close(frame.get_close_code())
            transport.disconnect()
        else:
            self.heard(read_s, frame.get_payload_as_bytes())

    def _send(self, message: bytes) -> None:
        self._transport.send(WSMsgType.TEXT, message)

    def pause_writing(self) -> None:
        pass

    def resume_writing(self) -> None:
        pass
