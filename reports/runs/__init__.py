"""A run for readers: its points, where they ran, and its answer."""
