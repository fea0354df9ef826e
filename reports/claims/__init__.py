"""The claims of papers about their figures, and whether our runs say the same."""
