"""A run as its reader sees it: what was measured, where, and what answers its question."""
