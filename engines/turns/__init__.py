"""The library of speaking systems: gateway, pipeline, and what is known of listeners."""
