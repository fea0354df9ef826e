"""One run: floor, plan, load generators with their progress, what they left, and the measurement made of it."""
