"""What virtual time says, said again over real sockets."""

AGAINST = "virtual time"
"""Whose numbers the claims hold ours against."""
