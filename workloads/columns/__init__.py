"""Columns of a trace beside those that every turn has: its class, and what an open microphone hears."""
