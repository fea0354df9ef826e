"""Pictures of traces: a function per picture, a page for all, and fitted generators next to real data."""
