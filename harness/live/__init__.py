"""Runs against real servers: real sockets, real speech, on the wall clock."""
