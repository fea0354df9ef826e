"""vLLM's own tests of its scheduler, with ours in its place: what passes there must pass here, or stand in a list."""
