"""Calls on an open microphone: what the server's ear costs and misses, at one call and at many."""

AGAINST = "the settings"
"""What follows from time-outs, delays and gates as they are set, without any server."""
