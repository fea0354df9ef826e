"""How good the load generator is, what misbehaving clients cost our server, and vLLM's own tests with our scheduler."""
