"""The client's side of a server: one endpoint for each kind of exchange, dialects and transports below it."""
