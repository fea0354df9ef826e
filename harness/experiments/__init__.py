"""What is to be measured: an experiment, its points, and the order in which they run."""
