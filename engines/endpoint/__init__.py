"""The server's side of live connections: sessions that speak the OpenAI Realtime subset to a gateway.

`protocol` describes the wire. `websocket_server` accepts connections, each a `client_socket`, and
`server_sessions.Sessions` makes one session for each: a `turn_session`, or a `frame_session` of endless calls.
`server_stats` is the recorder of an endless server; `metrics` shows it to Prometheus.
"""
