"""One session's side of a live run: what the clients of `harness.client` say, on a connection, and what comes back."""
