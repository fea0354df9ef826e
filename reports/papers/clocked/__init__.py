"""Models on a clock, which hear and say a frame each 80 ms whatever it holds: how many of their calls a GPU carries."""

AGAINST = "the published server"
"""vLLM-Omni's stand-alone PersonaPlex server, as its RFC 7389 tells of it."""
