"""The server's side of live connections: sessions that speak the OpenAI Realtime subset to a gateway.

`protocol` says what is on the wire, `sessions.Sessions` makes one `Connection` for each `Outbox` that a socket
front gives it, `turns` and `frames` are the two kinds of connection, `ledger` is the event log of a server that
runs for ever.
"""
