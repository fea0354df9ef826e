"""When requests arrive, how long they are, how fast people speak: laws fitted to published statistics."""
