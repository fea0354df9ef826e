"""Results of virtual time, repeated over real sockets."""

AGAINST = "virtual time"
"""Source of the numbers that the claims compare ours with."""
