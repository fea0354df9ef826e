"""Limits on a server's clients, so that no client costs the others anything."""

from pydantic import BaseModel, ConfigDict, Field

PCM_BYTES_PER_S = 64_000
"""Bytes of base64 in a second of speech: [derived] 24,000 samples of 2 bytes, 4 characters for every 3."""


class Limits(BaseModel):
    """Limits on sessions, messages and queues. The close frame's code names the limit that a client has passed."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    max_sessions: int = Field(
        64, ge=1, le=100_000, description="concurrent sessions; further ones are closed with 1013"
    )
    idle_timeout_s: float = Field(
        120, gt=0, le=1e7, description="a session that neither sends nor is sent anything for so long is closed, s"
    )
    message_bytes: int = Field(
        1 << 20, ge=1024, le=1 << 30, description="longest message; a longer one closes with 1009"
    )
    messages_per_s: float = Field(
        400, gt=0, le=1e6, description="messages a second in the long run: [chosen] twice the chunks of 5 ms of audio"
    )
    ahead_s: float = Field(
        30, gt=0, le=86_400, description="seconds that a client may send more than speech of 24 kHz takes; then 1008"
    )
    queue_bytes: int = Field(
        4 << 20,
        ge=1 << 16,
        le=1 << 32,
        description="bytes a client may leave unread: [chosen] a minute of speech; then 1008, reads too slowly",
    )
    binary_frames: int = Field(
        3, ge=0, le=1_000_000, description="binary frames that are answered with an error before 1003"
    )
    handshake_timeout_s: float = Field(5, gt=0, le=3600, description="from the connection to its complete request, s")
    ping_s: float = Field(20, gt=0, le=1e7, description="silence before a ping, and again before the client is gone, s")
    close_timeout_s: float = Field(2, gt=0, le=3600, description="for a client to answer a close frame, s")

    @property
    def burst_messages(self) -> float:
        """Messages that may come at once, after a connection stood still."""
        return self.ahead_s * 100  # [derived] chunks of 10 ms, the shortest of the dialects

    @property
    def bytes_per_s(self) -> float:
        """Bytes per second in the long run: speech, and a quarter more for the JSON around short chunks [chosen]."""
        return 1.25 * PCM_BYTES_PER_S

    @property
    def burst_bytes(self) -> float:
        """Bytes that may come at once; always at least a longest message."""
        return max(self.ahead_s * PCM_BYTES_PER_S, 2.0 * self.message_bytes)
