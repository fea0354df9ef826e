"""All connections of one server."""

from engines.build import Server
from engines.build_frames import FrameServer
from engines.endpoint.ledger import Ledger
from engines.endpoint.protocol import Connection, Outbox


class Sessions:
    """Makes a connection for each client. ``open``: connections that have begun and not ended.

    ``server`` runs already or is about to; ``ledger`` is its recorder. ``engine``, ``device``: names that clients are
    told. Must be made inside the running event loop, as the server is.
    """

    def __init__(
        self, server: Server | FrameServer, ledger: Ledger, *, engine: str, device: str, seed: int = 0
    ) -> None:
        self.server = server
        self.ledger = ledger
        self.open = 0
        self._engine, self._device, self._seed = engine, device, seed
        self._opened = 0

    def connect(self, outbox: Outbox) -> Connection:
        """A connection that answers through ``outbox``; the front calls ``begin`` when the handshake is done."""
        raise NotImplementedError
