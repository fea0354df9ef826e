"""The library of systems for calls: audio that never stops, answered in every frame."""
