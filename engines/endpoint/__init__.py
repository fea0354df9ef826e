"""The server's side of live connections: sessions that speak the OpenAI Realtime subset to a gateway.

`protocol` says what is on the wire. `websocket_server` accepts connections, each a `client_socket`, and
`server_sessions.Sessions` makes one session for each: a `turn_session`, or a `frame_session` of calls without pause.
`server_stats` is the recorder of a server that runs for ever, which `metrics` shows to Prometheus.
"""
