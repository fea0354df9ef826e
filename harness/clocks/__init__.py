"""The two clocks of an event loop: simulated time that jumps, and the wall."""
