"""Calls on an open microphone: what the server's ear costs and misses, at one call and at many."""

AGAINST = "the settings"
"""Source of the numbers that the claims compare ours with: time-outs, delays and gates as they are set, without any
server."""
