"""The cost of a load: seconds of GPUs."""
