"""What papers claim of their figures, and whether our runs say the same."""
