"""Replays: what served them, what a load costs, and the parts of a report that live runs do not have."""
