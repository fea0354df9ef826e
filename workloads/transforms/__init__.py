"""Traces made of others, or dealt out; and when their turns would happen if the server answered at once."""
