"""The usual rules of routing, a file each. What they are made with is a stage's replicas, or what stands for them."""
