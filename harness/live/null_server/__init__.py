"""A server that only keeps time. What a client measures beyond its truth is the client's own error."""
