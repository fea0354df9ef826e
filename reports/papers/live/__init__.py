"""What virtual time says, said again over real sockets."""

AGAINST = "virtual time"
"""Source of the numbers that the claims compare ours with."""
