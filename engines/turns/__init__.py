"""The library of speaking systems: gateway, pipeline, and the server's knowledge of listeners."""
